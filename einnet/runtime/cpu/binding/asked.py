"""What runs the kernels of a plan that are not generated: the vendor library's implementations, and schedules along time."""

from __future__ import annotations

from einnet.instantiate.kernels import OpaqueCall, Plan, VendorKernel
from einnet.instantiate.kernels.arithmetics import F32
from einnet.instantiate.kernels.contractions import arithmetic_of
from einnet.runtime import arena as memory
from einnet.runtime.cpu import dnnl, fallback
from einnet.runtime.cpu.along_time import FLOAT, settled, stepped
from einnet.runtime.cpu.dnnl_kernels import prepare
from einnet.runtime.cpu.prepared import Packed, Prepared


class Asked:
    """By the places of kernels in the plan. What is in neither of `prepared` and `stepped` is generated, or run by ONNX Runtime.

    `notes` say which vendor kernels have no fast implementation here: ONNX Runtime runs those, or without that the library's reference code; a
    `strict` plan has none such. Raises Refused for a kernel that cannot be run, or for a strict plan not fast.
    """

    def __init__(self, plan: Plan, strict: bool) -> None:
        self.plan = plan
        self.constants = {b.name for b in plan.buffers if b.role == "constant"}
        self.notes: list[str] = []
        self.prepared: dict[int, Prepared] = {}
        if dnnl.available() is None:
            self.stream = dnnl.new_stream()
            for n, kernel in enumerate(plan.kernels):
                if isinstance(kernel, VendorKernel):
                    self._prepare(n, kernel, strict)
        self.stepped = {n: found for n, k in enumerate(plan.kernels) if isinstance(k, OpaqueCall) and (found := stepped(k)) is not None}
        self.once = {n: settled(found, self._constants(plan.kernels[n])) for n, found in self.stepped.items()}
        self.packed: list[Packed] = []
        """The distinct packed operands; `packed_of` maps kernels to them."""
        self.packed_of: dict[int, int] = {}
        self._share_packed()

    def _prepare(self, n: int, kernel: VendorKernel, strict: bool) -> None:
        """Ask for an implementation. What is refused is left to ONNX Runtime, or without that to the reference code."""
        try:
            self.prepared[n] = prepare(kernel, self.constants)
        except dnnl.Refused as reason:
            if strict or arithmetic_of(kernel) != F32:
                raise
            missing = fallback.missing(kernel)
            if missing:
                self.prepared[n] = prepare(kernel, self.constants, reference=True)
            what = f"{fallback.engine(kernel)} runs it" if not missing else f"its reference code runs it, slowly ({missing})"
            self.notes.append(f"kernel {n} ({type(kernel).__name__}): {what}, because {reason}")

    def _constants(self, kernel: object) -> set[str]:
        """What a recursion calls those of its inputs that are constants."""
        assert isinstance(kernel, OpaqueCall) and kernel.recursion is not None
        return {t.name for t, v in zip(kernel.recursion.inputs, kernel.inputs, strict=True) if v.buffer in self.constants}

    def _share_packed(self) -> None:
        for n, prepared in self.prepared.items():
            if prepared.packed:
                known = prepared.packed.among(self.packed)
                self.packed_of[n] = len(self.packed) if known is None else known
                if known is None:
                    self.packed.append(prepared.packed)

    def along_time(self) -> dict[int, memory.Arena]:
        """Where the nodes that are computed along time keep what is inside them, but for what their constants settle."""
        return {n: memory.stack({t: FLOAT * k for t, k in s.sizes.items() if t not in self.once[n]}) for n, s in self.stepped.items()}

    def scratch_bytes(self, n: int) -> int:
        """Of the library's own for a kernel."""
        return self.prepared[n].scratch_bytes if n in self.prepared else 0

    def kept(self) -> dict[str, int]:
        """Bytes of the constants that are read as they are."""
        nbytes, read = memory.sizes(self.plan), self._read_unpacked()
        return {b.name: nbytes[b.name] for b in self.plan.buffers if b.role == "constant" and b.name in read}

    def _read_unpacked(self) -> set[str]:
        """Buffers that some step reads where they lie, or that are given out."""
        read = {v.buffer for _, v in self.plan.outputs}
        for n, kernel in enumerate(self.plan.kernels):
            prepared = self.prepared.get(n)
            if prepared:
                read.update(view.buffer for _, _, view in prepared.operands)
                read.update(one.view.buffer for _, one in prepared.rounded)
            else:
                read.update(v.buffer for v in kernel.operand_views)
        return read
