"""What Li et al. 2022 print: Tables 2 to 4, and the settings behind them. The numbers are the paper's claims."""

COLUMNS = ("AUC", "MRR", "NDCG@5", "NDCG@10")  # in per cent

TABLE2 = {  # organisations, people, items, training sessions, test sessions
    "MoocData": (16, 14_173, 30_430, 21_492, 5298),
    "MovieData": (2, 9217, 7862, 10_536, 2646),
}
TABLE3 = {
    "MoocData": {
        "GRU4Rec": (71.54, 27.44, 29.13, 33.44),
        "Bert4Rec": (97.35, 35.21, 37.16, 42.62),
        "SR-GNN": (83.82, 28.94, 31.26, 35.98),
        "FCF": (70.04, 23.68, 25.02, 31.72),
        "FedNewsRec": (96.84, 31.75, 33.24, 38.47),
        "FedRec++": (69.93, 22.51, 23.34, 30.99),
        "FedSeqRec": (96.92, 32.94, 34.72, 39.84),
    },
    "MovieData": {
        "GRU4Rec": (68.74, 28.12, 30.03, 34.48),
        "Bert4Rec": (73.47, 32.69, 34.99, 38.23),
        "SR-GNN": (72.93, 31.09, 32.46, 36.75),
        "FCF": (66.94, 27.10, 28.47, 33.66),
        "FedNewsRec": (85.26, 34.89, 36.71, 41.09),
        "FedRec++": (65.20, 25.14, 26.47, 31.49),
        "FedSeqRec": (86.32, 35.30, 37.14, 41.86),
    },
}
IMPROVED = {"MoocData": (0.08, 3.76, 4.45, 3.56), "MovieData": (1.24, 1.19, 1.18, 1.89)}  # FedSeqRec over FedNewsRec
TABLE4 = {  # trained centrally
    "MoocData": {
        "Bert4Rec": (97.35, 35.21, 37.16, 42.62),
        "FedNewsRec": (97.08, 33.05, 34.80, 39.97),
        "FedSeqRec": (97.17, 34.62, 36.64, 41.76),
    },
    "MovieData": {
        "Bert4Rec": (73.47, 32.69, 34.99, 38.23),
        "FedNewsRec": (85.97, 35.41, 37.42, 41.89),
        "FedSeqRec": (86.88, 36.19, 38.04, 42.54),
    },
}
PARAMETERS = {"Bert4Rec": 3_621_248, "FedNewsRec": 2_524_003, "FedSeqRec": 1_884_406}
RATE = {"MoocData": 0.40, "MovieData": 0.35}
AWAKE = {"MoocData": 0.3, "MovieData": 1.0}  # the share of organisations in a round
DELTA = {"MoocData": 0.2, "MovieData": 0.3}
GAINS = {  # Figure 5, in per cent of NDCG@5: of re-averaging, and of the tensor layer
    "MoocData": (23.5, 1.9),
    "MovieData": (1.9, 2.2),
}
CONVERGED = 200  # rounds
