#define CLADE_LEVEL kLevelAVX512
#define CLADE_LEVEL_NAME "avx512"
#include "level.inl"
