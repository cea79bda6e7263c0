"""LSTM encoder-decoders, with and without attention."""
