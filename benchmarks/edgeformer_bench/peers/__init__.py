"""Other engines that run the same weights, to compare with. Each runs in a process of its own."""
