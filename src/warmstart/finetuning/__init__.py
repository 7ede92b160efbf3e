"""Fine-tuning: schemes, one run, pretraining, calibration."""
