"""Statistics: proportions, means, bootstrap, receiver operating characteristics, covariances."""
