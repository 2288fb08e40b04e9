// Draws the charts: each figure names its specification, and another one for where it is narrow.
(() => {
  const { config, specs } = JSON.parse(document.getElementById("charts").textContent);
  const options = { config, mode: "vega-lite", actions: false, renderer: "svg", ast: true, defaultStyle: false };
  const chosen = (place) =>
    place.dataset.narrow && place.clientWidth < 560 ? place.dataset.narrow : place.dataset.chart;
  const draw = (place) => {
    const name = chosen(place);
    if (place.dataset.drawn === name) return;
    place.dataset.drawn = name;
    window.vegaEmbed(place, specs[name], options).catch((problem) => {
      place.textContent = "This chart could not be drawn: " + problem;
      console.error(problem);
    });
  };
  const places = [...document.querySelectorAll("[data-chart]")];
  places.forEach(draw);
  addEventListener("resize", () => places.forEach(draw));
  addEventListener("beforeprint", () => document.querySelectorAll("details.printed").forEach((one) => { one.open = true; }));
})();
