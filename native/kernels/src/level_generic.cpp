#define CLADE_LEVEL kLevelGeneric
#define CLADE_LEVEL_NAME "generic"
#include "level.inl"
