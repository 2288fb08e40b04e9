"""Analysis: whether a plan can work, where its noise floor is, and what was sent."""
