"""From a network and data to a trained network: `sn.fit` and what it keeps."""
