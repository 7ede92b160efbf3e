"""Every statistic of warmstart, each written once: intervals, resampling, comparisons, calibration, abstention, extrapolation."""
