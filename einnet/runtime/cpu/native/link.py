"""Native code without a linker: relocatable ELF objects (x86-64) placed into memory and bound to the symbols of loaded libraries.

Code generated at one time runs at another without a compiler, a linker or the code generator: `Image` lays the sections of some objects out
in one mapping, resolves symbols among them and then in the given libraries, and makes the code pages executable and read-only.
"""

from __future__ import annotations

import ctypes as C
import mmap
import platform
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from einnet.errors import BackendError

_SHT_NOBITS, _SHT_RELA, _SHT_SYMTAB = 8, 4, 2
_SHF_WRITE, _SHF_ALLOC = 1, 2
_UNDEFINED, _ABSOLUTE, _COMMON = 0, 0xFFF1, 0xFFF2
_R_64, _R_PC32, _R_PLT32, _R_GOTPCREL, _R_PC64, _R_GOTPCRELX, _R_REX_GOTPCRELX = 1, 2, 4, 9, 24, 41, 42
_UNWIND = ".eh_frame"


def supported() -> bool:
    """Whether this machine runs such objects."""
    return platform.system() == "Linux" and platform.machine() in ("x86_64", "AMD64")


@dataclass(frozen=True)
class _Section:
    name: str
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    align: int


@dataclass(frozen=True)
class _Symbol:
    name: str
    section: int
    value: int
    local: bool


class ObjectFile:
    """One relocatable object: sections, symbols, relocations. Raises BackendError if the bytes are none."""

    def __init__(self, data: bytes) -> None:
        try:
            self._read(data)
        except (struct.error, IndexError, UnicodeDecodeError, ValueError) as e:
            raise BackendError(f"damaged object code: {e}") from e

    def _read(self, data: bytes) -> None:
        if data[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<HH", data, 16) != (1, 62):
            raise BackendError("object code is not a relocatable ELF file for x86-64")
        self.data = data
        (table,) = struct.unpack_from("<Q", data, 40)
        entry, count, names = struct.unpack_from("<HHH", data, 58)
        raw = [struct.unpack_from("<IIQQQQIIQQ", data, table + n * entry) for n in range(count)]
        strings = raw[names][4]
        self.sections = [
            _Section(self._string(strings + name), kind, flags, offset, size, link, info, align or 1)
            for name, kind, flags, _, offset, size, link, info, align, _ in raw
        ]
        for s in self.sections:
            if s.kind != _SHT_NOBITS and s.offset + s.size > len(data):
                raise BackendError("damaged object code: a section ends beyond the file")
        self.symbols = [symbol for s in self.sections if s.kind == _SHT_SYMTAB for symbol in self._symbols(s)]

    def _string(self, at: int) -> str:
        return self.data[at : self.data.index(b"\0", at)].decode()

    def _symbols(self, section: _Section) -> list[_Symbol]:
        strings = self.sections[section.link].offset
        found = []
        for at in range(section.offset, section.offset + section.size, 24):
            name, info, _, index, value, _ = struct.unpack_from("<IBBHQQ", self.data, at)
            found.append(_Symbol(self._string(strings + name), index, value, info >> 4 == 0))
        return found

    def loaded(self) -> list[int]:
        """The sections that take part in execution."""
        return [n for n, s in enumerate(self.sections) if s.flags & _SHF_ALLOC and s.size and s.name != _UNWIND]

    def relocations(self) -> list[tuple[int, int, int, int, int]]:
        """(section, offset, type, symbol, addend) of the loaded sections."""
        found, loaded = [], set(self.loaded())
        for s in self.sections:
            if s.kind == _SHT_RELA and s.info in loaded:
                for at in range(s.offset, s.offset + s.size, 24):
                    offset, info, addend = struct.unpack_from("<QQq", self.data, at)
                    if offset + 4 > self.sections[s.info].size or info >> 32 >= len(self.symbols):
                        raise BackendError("damaged object code: a relocation lies beyond its section")
                    found.append((s.info, offset, info & 0xFFFFFFFF, info >> 32, addend))
        return found


class Image:
    """Linked code in memory, alive as long as the object.

    `resolve(name)` gives the address of a symbol that no object defines, or None. `pointers` maps names of data symbols of pointer size to
    the names of functions whose addresses they are to hold. Raises BackendError for an unresolved symbol.
    """

    def __init__(self, objects: Sequence[bytes], resolve: Callable[[str], int | None], pointers: Mapping[str, str] | None = None) -> None:
        if not supported():
            raise BackendError(f"generated code is linked on x86-64 Linux only, this is {platform.system()} {platform.machine()}")
        self._files = [ObjectFile(data) for data in objects]
        self._resolve = resolve
        self._places: dict[tuple[int, int], int] = {}
        self._defined: dict[str, int] = {}
        self._slots: dict[str, int] = {}
        self._stubs: dict[str, int] = {}
        self._lay_out()
        self._relocate()
        for name, target in (pointers or {}).items():
            if name in self._defined:
                struct.pack_into("<Q", self._memory, self._defined[name], self.address(target))
        self._protect()

    def __contains__(self, name: object) -> bool:
        """The object code defines a symbol of that name."""
        return name in self._defined

    def address(self, name: str) -> int:
        """The address of a symbol that the objects define."""
        if name not in self._defined:
            raise BackendError(f"object code defines no symbol {name}")
        return self._base + self._defined[name]

    def _lay_out(self) -> None:
        """Offsets: read-only sections, stubs and slots for external symbols, then on a new page writable sections."""
        end = 0
        sections = [(f, n, file.sections[n]) for f, file in enumerate(self._files) for n in file.loaded()]
        for writable in (False, True):
            for f, n, s in sections:
                if bool(s.flags & _SHF_WRITE) == writable:
                    end = -(-end // s.align) * s.align
                    self._places[f, n] = end
                    end += s.size
            if not writable:
                externals = sorted({s.name for file in self._files for s in file.symbols if s.name})
                end = -(-end // 16) * 16
                for name in externals:
                    self._slots[name], self._stubs[name] = end, end + 8
                    end += 16
                end = -(-end // mmap.PAGESIZE) * mmap.PAGESIZE
                self._code_end = end
        self._memory = mmap.mmap(-1, max(end, mmap.PAGESIZE), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        self._base = C.addressof(C.c_char.from_buffer(self._memory))
        for f, n, s in sections:
            if s.kind != _SHT_NOBITS:
                place = self._places[f, n]
                self._memory[place : place + s.size] = self._files[f].data[s.offset : s.offset + s.size]
        for f, file in enumerate(self._files):
            for symbol in file.symbols:
                if symbol.name and not symbol.local and (f, symbol.section) in self._places:
                    self._defined.setdefault(symbol.name, self._places[f, symbol.section] + symbol.value)

    def _external(self, name: str) -> int:
        """The absolute address of a global symbol."""
        if name in self._defined:
            return self._base + self._defined[name]
        found = self._resolve(name)
        if found is None:
            raise BackendError(f"object code needs the symbol {name}, which no loaded library has")
        return found

    def _slot(self, name: str) -> int:
        """The address of a memory word that holds the symbol's address."""
        struct.pack_into("<Q", self._memory, self._slots[name], self._external(name))
        return self._base + self._slots[name]

    def _stub(self, name: str) -> int:
        """A jump to an external function that lies within reach of 32-bit displacements."""
        if name in self._defined:
            return self._base + self._defined[name]
        self._slot(name)
        at = self._stubs[name]
        self._memory[at : at + 6] = b"\xff\x25" + struct.pack("<i", self._slots[name] - (at + 6))
        return self._base + at

    def _relocate(self) -> None:
        for f, file in enumerate(self._files):
            for section, offset, kind, index, addend in file.relocations():
                at = self._places[f, section] + offset
                here, symbol = self._base + at, file.symbols[index]
                if kind in (_R_GOTPCREL, _R_GOTPCRELX, _R_REX_GOTPCRELX) and symbol.name:
                    self._put("<i", at, self._slot(symbol.name) + addend - here)
                elif kind in (_R_PC32, _R_PLT32):
                    self._put("<i", at, self._target(f, symbol, near=True) + addend - here)
                elif kind == _R_PC64:
                    self._put("<q", at, self._target(f, symbol, near=False) + addend - here)
                elif kind == _R_64:
                    self._put("<Q", at, self._target(f, symbol, near=False) + addend)
                else:
                    raise BackendError(f"object code has a relocation of type {kind}, which is not supported")

    def _put(self, form: str, at: int, value: int) -> None:
        try:
            struct.pack_into(form, self._memory, at, value)
        except struct.error as e:
            raise BackendError(f"object code cannot be placed: {e}") from e

    def _target(self, file: int, symbol: _Symbol, near: bool) -> int:
        if symbol.local or not symbol.name:
            if symbol.section == _ABSOLUTE:
                return symbol.value
            if (file, symbol.section) not in self._places:
                raise BackendError("object code refers to a section that is not loaded")
            return self._base + self._places[file, symbol.section] + symbol.value
        return self._stub(symbol.name) if near else self._external(symbol.name)

    def _protect(self) -> None:
        if self._code_end:
            libc = C.CDLL(None, use_errno=True)
            if libc.mprotect(C.c_void_p(self._base), C.c_size_t(self._code_end), mmap.PROT_READ | mmap.PROT_EXEC):
                raise BackendError(f"this system does not let memory become executable (errno {C.get_errno()})")
