import json
import math
import random
from statistics import NormalDist, mean

FONT = {
    "A": "0E 11 11 1F 11 11 11", "C": "0E 11 10 10 10 11 0E", "F": "1F 10 10 1E 10 10 10",
    "I": "04 04 04 04 04 04 04", "J": "1F 02 02 02 02 12 0C", "L": "10 10 10 10 10 10 1F",
    "P": "1E 11 11 1E 10 10 10", "T": "1F 04 04 04 04 04 04", "U": "11 11 11 11 11 11 0E",
    "Y": "11 11 0A 04 04 04 04",
}
N = 200
SD = 10


def cells(letter):
    out = []
    for i, row in enumerate(FONT[letter].split()):
        bits = format(int(row, 16), "05b")
        out += [(col, 6 - i) for col in range(5) if bits[col] == "1"]
    return out


def geometry(letter):
    c = cells(letter)
    feet = [col for col, row in c if row == 0]
    x = mean(col + 0.5 for col, row in c)
    y = mean(row + 0.5 for col, row in c)
    return x, y, min(feet), max(feet) + 1


def rate(letter):
    x, y, left, right = geometry(letter)
    up = 0
    for _ in range(N):
        t = math.radians(random.gauss(0, SD))
        if left <= x + y * math.tan(t) <= right:
            up += 1
    return up / N


def predicted(letter):
    x, y, left, right = geometry(letter)
    a = math.degrees(math.atan((left - x) / y))
    b = math.degrees(math.atan((right - x) / y))
    F = NormalDist(0, SD).cdf
    return F(b) - F(a)


def pearson(u, v):
    mu, mv = mean(u), mean(v)
    cov = sum((p - mu) * (q - mv) for p, q in zip(u, v))
    return cov / math.sqrt(sum((p - mu) ** 2 for p in u) * sum((q - mv) ** 2 for q in v))


random.seed(7)
bare = {letter: rate(letter) for letter in FONT}
for letter, r in bare.items():
    print(letter, r)
widths = [geometry(l)[3] - geometry(l)[2] for l in FONT]
corr = {
    "base_width": pearson(widths, list(bare.values())),
    "predicted_rate": pearson([predicted(l) for l in FONT], list(bare.values())),
}
print("correlations", corr)
json.dump({"trials": N, "bare": bare, "mean": {"bare": mean(bare.values())}, "spearman": corr}, open("results.json", "w"))
