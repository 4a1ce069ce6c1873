/* Memory in large pages, where the system has them. Included by kernels.c. */

#ifdef __linux__
#include <sys/mman.h>
#ifndef MADV_HUGEPAGE
#define MADV_HUGEPAGE 14
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#endif

/* Ask for large pages under [start, start + bytes): a step follows nine arrays at once, and looks up each of their small
   pages. What is there stays as it is; a system that cannot or will not changes nothing. */
EXPORT int slabnet_large_pages(char *start, int64_t bytes, int threads) {
#ifdef __linux__
  const uintptr_t page = 2u << 20, from = ((uintptr_t)start + page - 1) / page * page;
  const uintptr_t to = ((uintptr_t)start + (uintptr_t)bytes) / page * page;
  if (to > from) {
    madvise((void *)from, to - from, MADV_HUGEPAGE);
    madvise((void *)from, to - from, MADV_COLLAPSE);
  }
#endif
  (void)start, (void)bytes, (void)threads;
  return 0;
}
