"""Every statistic of warmstart, each written once: intervals, resampling, comparisons, calibration, abstention, extrapolation.

    from warmstart.stats.differences import MethodScores, paired_difference

The modules need no other part of warmstart; docs/reference/statistics.md lists what is public in them, by question.
"""
