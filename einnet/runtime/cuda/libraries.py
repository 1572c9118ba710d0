"""The libraries of a device: one handle for each of them and each arithmetic, however many programs are bound."""

from __future__ import annotations

from einnet.runtime.cuda.convolutions import Convolutions
from einnet.runtime.cuda.cublaslt import Products
from einnet.runtime.cuda.driver import Driver


class Libraries:
    """cuBLASLt and cuDNN on one driver's stream, each set up when it is first asked for."""

    def __init__(self, driver: Driver | None = None) -> None:
        self.driver = driver or Driver()
        self._products: dict[str, Products] = {}
        self._convolutions: dict[str, Convolutions] = {}

    def products(self, math: str) -> Products:
        """Matrix products in an arithmetic."""
        if math not in self._products:
            self._products[math] = Products(self.driver, math)
        return self._products[math]

    def convolutions(self, math: str) -> Convolutions:
        """Convolutions in an arithmetic."""
        if math not in self._convolutions:
            self._convolutions[math] = Convolutions(self.driver, math)
        return self._convolutions[math]
