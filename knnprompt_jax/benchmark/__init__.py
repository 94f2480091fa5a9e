"""Speed of building a datastore, beside the device's peak and PyTorch; estimates for devices that need not exist."""
