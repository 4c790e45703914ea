"""Figures of one run: the median, the ends and how many."""
import statistics


def row(figures):
    return {"median": round(statistics.median(figures), 4), "min": round(min(figures), 4), "max": round(max(figures), 4), "n": len(figures)}
