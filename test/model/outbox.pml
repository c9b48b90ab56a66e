/*
 * outbox.pml: relays take the messages of one aggregate from the outbox.
 *
 * Checks G10: a later message of the aggregate is never handed out before an earlier one is acknowledged (except in the
 * same batch), where the transaction that publishes it began after the earlier one had committed; no two relays hold
 * batches of one aggregate; no message is left behind by the lower bound from which a relay walks. Publishers 0 and 1
 * serialise on the aggregate, publisher 2 does not (with -DPUBLISHERS=2, neither does). Publishers commit or roll back; relays die at any moment and come
 * back as new sessions; leases end at any moment; acknowledgements come late.
 *
 * -DNO_LOWER leaves the lower bound out, -DRELAYS=1 the other relay. Else, without any -D the model is the protocol; every -D takes one rule away (see checks.txt).
 */
#ifndef RELAYS
#define RELAYS 2
#endif
#ifndef TURNS
#define TURNS 3                                   /* takes of all relays together */
#endif
#ifndef PUBLISHERS
#define PUBLISHERS 3
#endif
#define SERIAL (PUBLISHERS > 2 -> 2 : 0)           /* so many publishers serialise on the aggregate */
#define NOBODY 255
#define LAST 4                                    /* positions are 1 .. 3 */

byte turns = TURNS;
byte sequence;                                    /* last position drawn */
bool drawn;                                       /* publisher 0 or 1 is inside its business lock */
byte place[PUBLISHERS];                           /* position of its message; 0: none yet */
bool writes[PUBLISHERS];                          /* holds the table's lock */
bool begun_after[PUBLISHERS];                     /* publisher 1: publisher 0 had committed */
/* ---- rows, as committed ---- */
bool live[LAST];
byte holder[LAST];                                /* relay of the current lease */
byte deliveries[LAST];
bool over[LAST];                                  /* that lease is over */
byte lock = NOBODY;                               /* on the aggregate */
/* ---- relays ---- */
byte lower[RELAYS];                               /* every position below has been dealt with, and none will appear */
bool alive[RELAYS];                               /* holds a batch, and its lease is not over */

#define EVERY(p) for (p : 1 .. PUBLISHERS)

active [PUBLISHERS] proctype Publisher()
{
    byte me = _pid, r;
    if :: me < SERIAL -> atomic { !drawn -> drawn = true } :: else -> skip fi;    /* the aggregate's row, in the business's own table */
    begun_after[me] = (SERIAL && me == 1 && place[0] && !writes[0]);
#ifndef DRAW_FIRST
    writes[me] = true;
#endif
    atomic { sequence++; place[me] = sequence };
#ifdef DRAW_FIRST
    writes[me] = true;
#endif
    if
    :: atomic {                                                              /* COMMIT is seen ... */
           live[place[me]] = true; holder[place[me]] = NOBODY; over[place[me]] = true;
           for (r : 0 .. RELAYS - 1) { assert(place[me] >= lower[r]) }; r = 0 /* G10: nothing is left behind */
       }
    :: skip                                                                  /* ROLLBACK */
    fi;
    atomic { writes[me] = false; if :: me < SERIAL -> drawn = false :: else -> skip fi }  /* ... before the locks go */
}

inline look(s, f) {                               /* an MVCC snapshot: live rows from the lower bound on; f: the first */
    f = 0; s = 0;
    EVERY(p) { if :: live[p] && p >= lower[me] -> s = p; if :: !f -> f = p :: else -> skip fi :: else -> skip fi };
    p = 0
}
inline open_lease(l) {                            /* a lease on any row of the aggregate, before or behind, is not over */
    l = false;
#ifndef HEAD_ONLY
    EVERY(p) { if :: live[p] && !over[p] -> l = true :: else -> skip fi };
#else
    EVERY(p) { if :: live[p] -> l = !over[p]; break :: else -> skip fi };
#endif
    p = 0
}

active [RELAYS] proctype Relay()
{
    byte me = _pid - PUBLISHERS, p, q, first, highest, upto, got[LAST];
    byte waits;                                   /* bits: publishers whose end a round waits for */
    bool round, ready, leased, mine[LAST];
again:
    atomic { turns -> turns-- };
#ifndef NO_LOWER
#ifndef READY_LATE
    atomic { ready = round; for (p : 0 .. PUBLISHERS - 1) { if :: (waits & (1 << p)) && writes[p] -> ready = false :: else -> skip fi }; p = 0 };
#endif
    atomic { look(highest, first) };                                         /* the walk's snapshot */
#ifdef READY_LATE
    atomic { ready = round; for (p : 0 .. PUBLISHERS - 1) { if :: (waits & (1 << p)) && writes[p] -> ready = false :: else -> skip fi }; p = 0 };
#endif
    atomic {
#ifdef LOWER_AT_ONCE
        if :: first -> lower[me] = first :: else -> skip fi;
#else
        if
        :: ready -> lower[me] = (first && first <= upto -> first : upto + 1); round = false; waits = 0; ready = false
        :: else -> skip
        fi;
#endif
        EVERY(p) { assert(!live[p] || p >= lower[me]) }; p = 0;               /* G10: nothing is left behind */
        if :: !round && highest -> upto = highest; round = true :: else -> highest = 0 fi
    };
    atomic {                                                                 /* who may have drawn one below: listed after */
        if :: highest -> for (p : 0 .. PUBLISHERS - 1) { if :: writes[p] -> waits = waits | (1 << p) :: else -> skip fi }; p = 0
           :: else -> skip fi;
        highest = 0
    };
#else
    atomic { look(highest, first); highest = 0 };
#endif
    if :: !first -> goto idle :: else -> skip fi;
#ifdef LOOK_EARLY
    atomic { open_lease(leased); EVERY(p) { mine[p] = live[p] }; p = 0 };
#endif
    atomic { if :: lock == NOBODY -> lock = me :: else -> goto idle fi };
#ifndef LOOK_EARLY
    atomic { open_lease(leased); EVERY(p) { mine[p] = live[p] }; p = 0 };    /* all rows of the aggregate, whatever the lower bound */
#endif
    atomic {
        if :: leased -> lock = NOBODY; EVERY(p) { mine[p] = false }; p = 0; goto idle :: else -> skip fi;
        EVERY(p) {
            if
            :: mine[p] && live[p] ->
                   deliveries[p]++; got[p] = deliveries[p]; holder[p] = me; over[p] = false
            :: else -> mine[p] = false                                       /* acknowledged just now */
            fi
        };
        EVERY(p) {                                                           /* G10: order */
            if :: mine[p] && p == place[1] && begun_after[1] && live[place[0]] -> assert(mine[place[0]])
               :: else -> skip fi
        };
        p = 0;
        for (q : 0 .. RELAYS - 1) { assert(q == me || !alive[q] || !(mine[1] || mine[2] || mine[3])) };  /* G10: no second batch */
        q = 0; alive[me] = mine[1] || mine[2] || mine[3]
    };
    lock = NOBODY;                                                           /* COMMIT was seen */
    do                                                                       /* published outside; acknowledged one by one */
    :: atomic {
           mine[1] || mine[2] || mine[3] ->
           if :: mine[1] -> p = 1 :: mine[2] -> p = 2 :: mine[3] -> p = 3 fi;
           mine[p] = false;
           if
#ifndef ACK_STALE
           :: live[p] && deliveries[p] == got[p] -> live[p] = false; over[p] = true
#else
           :: live[p] -> live[p] = false; over[p] = true
#endif
           :: else -> skip
           fi;
           got[p] = 0; p = 0;
           if :: !(mine[1] || mine[2] || mine[3]) -> alive[me] = false :: else -> skip fi
       }
    :: atomic {                                                              /* gives the earliest one back, and keeps the others */
           mine[1] || mine[2] || mine[3] ->
           if :: mine[1] -> p = 1 :: !mine[1] && mine[2] -> p = 2 :: !mine[1] && !mine[2] -> p = 3 fi;
           mine[p] = false;
           if :: live[p] && deliveries[p] == got[p] -> over[p] = true :: else -> skip fi;
           got[p] = 0; p = 0;
           if :: !(mine[1] || mine[2] || mine[3]) -> alive[me] = false :: else -> skip fi
       }
    :: atomic { !(mine[1] || mine[2] || mine[3]) -> break }
    :: atomic {                                                              /* dies; comes back as a new session */
           EVERY(p) { mine[p] = false; got[p] = 0 }; p = 0;
           lower[me] = 0; round = false; waits = 0; upto = 0; break
       }
    od;
idle:
    first = 0; leased = false;
    goto again
}

active proctype Clock()                           /* a batch's lease ends */
{
    byte r, p;
end:
    do
    :: atomic {
           if :: r = 0 :: RELAYS > 1 -> r = RELAYS - 1 fi;
           alive[r] = false;
           EVERY(p) { if :: live[p] && holder[p] == r -> over[p] = true :: else -> skip fi };
           p = 0; r = 0
       }
    od
}
