"""Runs the three experiments, prints their figures and writes results.json."""

import json

from letters import BITMAPS, base, blocks, on_plinth
from ranks import spearman
from standing import TRIALS, predicted_rate, stand_rate

bare, plinth, width, predicted = {}, {}, {}, {}
print("letter  base  predicted  bare   on a plinth")
for letter in BITMAPS:
    cells, raised = blocks(letter), on_plinth(letter)
    left, right = base(cells)
    width[letter], predicted[letter] = right - left, predicted_rate(cells)
    bare[letter] = stand_rate(cells, letter)
    plinth[letter] = stand_rate(raised, f"{letter} on a plinth")
    print(f"{letter:6}  {width[letter]:4}  {predicted[letter]:9.3f}  {bare[letter]:.3f}  {plinth[letter]:.3f}")

rates = list(bare.values())
correlations = {
    "base_width": spearman(list(width.values()), rates),
    "predicted_rate": spearman(list(predicted.values()), rates),
}
means = {"bare": sum(rates) / len(rates), "plinth": sum(plinth.values()) / len(plinth)}
print("mean stand rate:", {name: round(mean, 3) for name, mean in means.items()})
print("Spearman correlation with the bare rate:", {name: round(rho, 3) for name, rho in correlations.items()})

results = {"trials": TRIALS, "bare": bare, "plinth": plinth, "mean": means, "spearman": correlations}
with open("results.json", "w") as file:
    json.dump(results, file, indent=1)
