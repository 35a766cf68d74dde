// Compiling one function for several generations of processors.
#pragma once

// The loader picks the version for the processor at hand, through an ifunc. Sanitizers are not up yet when
// ifuncs are resolved, so their builds keep the plain version.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define GEMMAD_MULTIVERSION __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define GEMMAD_MULTIVERSION
#endif

// What such a function calls must become part of it, or it would stay in the plain version.
#define GEMMAD_INLINE inline __attribute__((always_inline))
