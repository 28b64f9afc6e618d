#define CLADE_LEVEL kLevelAVX2
#define CLADE_LEVEL_NAME "avx2"
#include "level.inl"
