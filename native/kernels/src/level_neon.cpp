#define CLADE_LEVEL kLevelNEON
#define CLADE_LEVEL_NAME "neon"
#include "level.inl"
