/* Processes that share memory wait for each other without a system call. Each has a line of its own, so that they do not
   write to the same one; what was written before a ticket is seen by who has seen the ticket. */

#ifdef _WIN32
#define YIELD()
#else
#include <sched.h>
#define YIELD() sched_yield()
#endif
#ifdef _MSC_VER   /* volatile reads and writes are ordered there (/volatile:ms), on the processors this is built for */
#define PUT(to, value) (*(volatile int64_t *)(to) = (value))
#define GET(from) (*(const volatile int64_t *)(from))
#else
#define PUT(to, value) __atomic_store_n(to, value, __ATOMIC_RELEASE)
#define GET(from) __atomic_load_n(from, __ATOMIC_ACQUIRE)
#endif

enum { LINE = 8 };  /* numbers of eight bytes */

EXPORT int slabnet_meet(int64_t *tickets, int64_t rank, int64_t world, int64_t ticket, int64_t looks, int threads) {
  (void)threads;
  PUT(tickets + LINE * rank, ticket);
  for (int64_t other = 0; other < world; other++) {
    for (int64_t look = 0; GET(tickets + LINE * other) < ticket; look++) {
      if (look >= looks) return 1;
      if (look % 64 == 63) YIELD();
    }
  }
  return 0;
}
