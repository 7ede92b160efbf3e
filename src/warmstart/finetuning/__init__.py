"""Fine-tuning: schemes, one run, continued pretraining, calibration."""
