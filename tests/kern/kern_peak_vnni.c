#include "kern/kern.h"
#include "kern/kern_peak.h"

uint64_t kern_peak_int8_vnni(uint32_t turns) { return peak_int8(turns); }
uint64_t kern_peak_float_vnni(uint32_t turns) { return peak_float(turns); }
