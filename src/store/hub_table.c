#include "store/hub.h"

extern const struct hub hub_hf;

const struct hub *const hub_table[] = {
    &hub_hf,
    NULL,
};
