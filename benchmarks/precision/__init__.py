"""The fastest program within an error, beside engines that choose their precision themselves."""
