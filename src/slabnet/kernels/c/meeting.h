/* Processes that share memory wait for each other without a system call. Each has a line of its own, so that they do not
   write to the same one; what was written before a ticket is seen by who has seen the ticket. */

#include <sched.h>

enum { LINE = 8 };  /* numbers of eight bytes */

EXPORT int slabnet_meet(int64_t *tickets, int64_t rank, int64_t world, int64_t ticket, int64_t looks, int threads) {
  (void)threads;
  __atomic_store_n(tickets + LINE * rank, ticket, __ATOMIC_RELEASE);
  for (int64_t other = 0; other < world; other++) {
    for (int64_t look = 0; __atomic_load_n(tickets + LINE * other, __ATOMIC_ACQUIRE) < ticket; look++) {
      if (look >= looks) return 1;
      if (look % 64 == 63) sched_yield();
    }
  }
  return 0;
}
