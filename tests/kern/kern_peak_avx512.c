#include "kern/kern.h"
#include "kern/kern_peak.h"

uint64_t kern_peak_int8_avx512(uint32_t turns) { return peak_int8(turns); }
uint64_t kern_peak_float_avx512(uint32_t turns) { return peak_float(turns); }
