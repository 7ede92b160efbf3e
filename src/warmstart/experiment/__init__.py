"""Methods times seeds times numbers of labels on one task: run, stored, chosen among, estimated, saved."""
