"""What generated CUDA text stands behind, for a device and for a C++ compiler that plays one."""

from __future__ import annotations

PRELUDE = """#ifdef __CUDACC_RTC__
typedef signed char int8_t; typedef short int16_t; typedef int int32_t; typedef long long int64_t;
typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned int uint32_t; typedef unsigned long long uint64_t;
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#else
#include <cstdint>
#include <cmath>
#endif
typedef unsigned char uchar; typedef unsigned short ushort; typedef unsigned int uint;
#ifndef __CUDACC__
#define __global__
#define __launch_bounds__(threads)
#define __cluster_dims__(x, y, z)
#define __restrict__
struct einnet_index { int x, y, z; };
static einnet_index blockIdx, threadIdx;
template <class T> static inline T max(T a, T b) { return a > b ? a : b; }
template <class T> static inline T min(T a, T b) { return a < b ? a : b; }
#endif
#ifdef __CUDACC__
#define einnet_aligned(array) array = (float*)__builtin_assume_aligned(array, 16)
#else
#define einnet_aligned(array)
#endif
#define CUDART_INF_F INFINITY
"""

AHEAD = """#ifdef __CUDACC__
#define einnet_inside static __device__ __forceinline__
einnet_inside unsigned einnet_place(const void* at) { return (unsigned)__cvta_generic_to_shared(at); }
einnet_inside void einnet_copy_4(float* to, const float* from, int inside) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
    :: "r"(einnet_place(to)), "l"(__cvta_generic_to_global(from)), "r"(inside ? 4 : 0) : "memory");
}
einnet_inside void einnet_copy_16(float* to, const float* from, int inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
    :: "r"(einnet_place(to)), "l"(__cvta_generic_to_global(from)), "r"(inside ? 16 : 0) : "memory");
}
einnet_inside void einnet_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int groups> einnet_inside void einnet_wait() { asm volatile("cp.async.wait_group %0;" :: "n"(groups) : "memory"); }
einnet_inside float einnet_tf32(float value) {
  unsigned kept;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(kept) : "f"(value));
  return __uint_as_float(kept);
}
einnet_inside void einnet_multiply_piece(float* sums, const float* a, const float* b) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
    : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
    : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])), "r"(__float_as_uint(a[3])),
      "r"(__float_as_uint(b[0])), "r"(__float_as_uint(b[1])));
}
einnet_inside void einnet_meet_cluster() {
  asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}
einnet_inside float einnet_of_block(const float* at, int block) {
  unsigned there; float value;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(einnet_place(at)), "r"(block));
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(there) : "memory");
  return value;
}
#endif
"""
"""What texts use whose copies are on their way while they compute, on a device; the host driver has its own."""

SHORT = """#ifdef __CUDACC__
#define einnet_inside static __device__ __forceinline__
einnet_inside uint einnet_f16(float value) { ushort kept; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(kept) : "f"(value)); return kept; }
einnet_inside uint einnet_bf16(float value) { ushort kept; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(kept) : "f"(value)); return kept; }
#else
static inline uint einnet_bits(float value) { uint bits; __builtin_memcpy(&bits, &value, 4); return bits; }
static inline uint einnet_bf16(float value) {
  uint bits = einnet_bits(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return bits >> 16 | 0x40u;
  return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}
static inline uint einnet_f16(float value) {
  uint bits = einnet_bits(value), size = bits & 0x7fffffffu, sign = bits >> 16 & 0x8000u;
  if (size > 0x7f800000u) return sign | 0x7e00u;
  if (size >= 0x477ff000u) return sign | 0x7c00u;
  if (size >= 0x38800000u) return sign | (size - 0x38000000u + 0xfffu + (size >> 13 & 1u)) >> 13;
  if (size < 0x33000000u) return sign;
  int down = 126 - (int)(size >> 23);
  uint whole = (size & 0x7fffffu) | 0x800000u, kept = whole >> down, rest = whole & ((1u << down) - 1u), middle = 1u << (down - 1);
  return sign | (kept + (rest > middle || (rest == middle && (kept & 1u))));
}
#endif
"""
"""Float32 rounded to the nearest number of 16 bits, ties to even, as these bits."""


def short(text: str) -> bool:
    """The text rounds to numbers of 16 bits."""
    return "einnet_f16(" in text or "einnet_bf16(" in text


def before(text: str) -> str:
    """What a text stands behind on a device."""
    return PRELUDE + (AHEAD if "einnet_commit" in text else "") + (SHORT if short(text) else "")
