/* load: keeps a fixed number of requests in flight at Kafka brokers and measures every one of them.
 *
 *   cc -O2 -o load load.c
 *   ./load api=produce topic=T target=HOST:PORT/PARTITION [target=...] [NAME=NUMBER ...]
 *
 * api        produce (v3, a batch of one record), fetch (v4), metadata (v1) or versions (v0)
 * target     connection i talks to target i modulo their number; the partition's leader listens there
 * connections=1 depth=1       requests in flight on each connection: a closed loop
 * seconds=5 warmup_ms=1000    measured time, and the time before it that does not count
 * requests=0                  stop after so many (0: by time alone)
 * warm_requests=0             so many answers do not count either
 * bytes=100                   length of the record's value, or most bytes of a fetch
 * acks=1                      of produce
 * span=0 step=0               fetch walks from offset 0 in steps, from the start again at span
 *
 * Prints one JSON object.  Latency is counted from handing the first byte to the socket to having
 * read the last byte of the answer.  Exit code 1 and a line on stderr when a broker hangs up, does
 * not answer or breaks the protocol.  Linux only.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MAX_TARGETS = 256, HEAD = 1024, SCRATCH = 1 << 20, MAX_FRAME = 256 << 20 };
enum { SUB_BITS = 6, SUB = 1 << SUB_BITS, BUCKETS = (64 - SUB_BITS + 1) * SUB };
enum api { PRODUCE = 0, FETCH = 1, METADATA = 3, VERSIONS = 18 };
static const int64_t SECOND = 1000000000;
static const int64_t DRAIN_LIMIT_S = 15;

struct target { struct sockaddr_in address; int32_t partition; };

struct connection {
    int fd;
    int waits_to_write;
    /* Going out: one frame at a time, used again for every request. */
    uint8_t *frame;
    size_t frame_length, sent;
    int sending;
    size_t offset_at; /* where a fetch says its offset */
    int64_t offset;
    uint32_t next_id, awaited_id;
    int64_t *started;
    /* Coming in: the length prefix, then a body whose first bytes are kept. */
    uint32_t prefix_got, size, got;
    uint8_t prefix[4], head[HEAD];
};

static struct {
    enum api api;
    const char *topic;
    struct target targets[MAX_TARGETS];
    long long target_count, connections, depth, seconds, warmup_ms, requests, warm_requests;
    long long bytes, acks, span, step;
} option = { .api = VERSIONS, .topic = "", .connections = 1, .depth = 1, .seconds = 5,
             .warmup_ms = 1000, .bytes = 100, .acks = 1 };

static uint64_t histogram[BUCKETS];
static struct {
    uint64_t started, answered; /* all of them */
    uint64_t counted, errors, payload;
    int first_error, stopping, open;
    int64_t begin, warm_until, end, opened, last_answer, slowest;
} run;
static int poller;
static uint8_t scratch[SCRATCH];

static void fail(const char *format, ...) {
    va_list values;
    va_start(values, format);
    fputs("load: ", stderr);
    vfprintf(stderr, format, values);
    fputc('\n', stderr);
    va_end(values);
    exit(1);
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * SECOND + t.tv_nsec;
}

/* Histogram: exact below SUB, then SUB buckets for every power of two (error below 1.6 %). */

static int bucket_of(uint64_t value) {
    if (value < SUB) return (int)value;
    int power = 63 - __builtin_clzll(value);
    return (power - SUB_BITS + 1) * SUB + (int)((value >> (power - SUB_BITS)) & (SUB - 1));
}

static double middle_of(int bucket) {
    if (bucket < SUB) return bucket;
    int shift = bucket / SUB - 1;
    uint64_t low = (uint64_t)(SUB + bucket % SUB) << shift;
    return (double)low + (double)((uint64_t)1 << shift) / 2;
}

static double percentile_us(double percent) {
    if (run.counted == 0) return 0;
    double wanted = (double)run.counted * percent / 100.0;
    uint64_t seen = 0;
    for (int i = 0; i < BUCKETS; i++) {
        seen += histogram[i];
        if (histogram[i] != 0 && (double)seen >= wanted) return middle_of(i) / 1000.0;
    }
    return (double)run.slowest / 1000.0;
}

/* Frames. */

struct writer { uint8_t *data; size_t length, room; };

static void put(struct writer *w, const void *data, size_t length) {
    if (w->length + length > w->room) {
        w->room = (w->length + length) * 2;
        w->data = realloc(w->data, w->room);
        if (w->data == NULL) fail("no memory for a frame of %zu bytes", w->length + length);
    }
    memcpy(w->data + w->length, data, length);
    w->length += length;
}

static void store(uint8_t *at, uint64_t value, int width) {
    for (int i = width - 1; i >= 0; i--, value >>= 8) at[i] = (uint8_t)value;
}

static void put_int(struct writer *w, int64_t value, int width) {
    uint8_t bytes[8];
    store(bytes, (uint64_t)value, width);
    put(w, bytes, (size_t)width);
}

static void put_string(struct writer *w, const char *text) {
    put_int(w, (int64_t)strlen(text), 2);
    put(w, text, strlen(text));
}

static void put_varint(struct writer *w, int64_t value) {
    uint64_t rest = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    do {
        uint8_t byte = rest & 127;
        rest >>= 7;
        if (rest != 0) byte |= 128;
        put(w, &byte, 1);
    } while (rest != 0);
}

static uint32_t crc32c(const uint8_t *data, size_t length) {
    static uint32_t table[256];
    if (table[1] == 0)
        for (uint32_t i = 0; i < 256; i++) {
            table[i] = i;
            for (int bit = 0; bit < 8; bit++)
                table[i] = (table[i] >> 1) ^ (table[i] & 1 ? 0x82f63b78u : 0);
        }
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < length; i++) crc = (crc >> 8) ^ table[(crc ^ data[i]) & 0xff];
    return crc ^ 0xffffffffu;
}

/* A batch (magic 2, no compression, no producer id) of one record without a key. */
static struct writer record_batch(void) {
    struct writer record = {0}, batch = {0};
    put_int(&record, 0, 1);     /* attributes */
    put_varint(&record, 0);     /* timestamp delta */
    put_varint(&record, 0);     /* offset delta */
    put_varint(&record, -1);    /* no key */
    put_varint(&record, option.bytes);
    uint32_t state = 1;
    for (long long i = 0; i < option.bytes; i++) {
        state = state * 1664525u + 1013904223u;
        put_int(&record, state >> 24, 1);
    }
    put_varint(&record, 0);     /* no headers */
    struct writer length = {0};
    put_varint(&length, (int64_t)record.length);

    int64_t timestamp = (int64_t)time(NULL) * 1000;
    put_int(&batch, 0, 8);      /* base offset */
    put_int(&batch, 0, 4);      /* length, below */
    put_int(&batch, -1, 4);     /* leader epoch */
    put_int(&batch, 2, 1);      /* magic */
    put_int(&batch, 0, 4);      /* CRC, below */
    size_t covered = batch.length;
    put_int(&batch, 0, 2);      /* attributes */
    put_int(&batch, 0, 4);      /* last offset delta */
    put_int(&batch, timestamp, 8);
    put_int(&batch, timestamp, 8);
    put_int(&batch, -1, 8);     /* producer id, epoch, sequence */
    put_int(&batch, -1, 2);
    put_int(&batch, -1, 4);
    put_int(&batch, 1, 4);      /* records */
    put(&batch, length.data, length.length);
    put(&batch, record.data, record.length);
    store(batch.data + 8, batch.length - 12, 4);
    store(batch.data + covered - 4, crc32c(batch.data + covered, batch.length - covered), 4);
    free(record.data);
    free(length.data);
    return batch;
}

static void build_frame(struct connection *c, int32_t partition, const struct writer *batch) {
    static const int version[] = { [PRODUCE] = 3, [FETCH] = 4, [METADATA] = 1, [VERSIONS] = 0 };
    struct writer w = {0};
    put_int(&w, 0, 4);          /* length, below */
    put_int(&w, option.api, 2);
    put_int(&w, version[option.api], 2);
    put_int(&w, 0, 4);          /* correlation id, for each request */
    put_string(&w, "load");
    switch (option.api) {
    case PRODUCE:
        put_int(&w, -1, 2);     /* no transaction */
        put_int(&w, option.acks, 2);
        put_int(&w, 30000, 4);
        put_int(&w, 1, 4);
        put_string(&w, option.topic);
        put_int(&w, 1, 4);
        put_int(&w, partition, 4);
        put_int(&w, (int64_t)batch->length, 4);
        put(&w, batch->data, batch->length);
        break;
    case FETCH:
        put_int(&w, -1, 4);     /* not a replica */
        put_int(&w, 500, 4);    /* wait, ms */
        put_int(&w, 1, 4);      /* for at least one byte */
        put_int(&w, option.bytes, 4);
        put_int(&w, 0, 1);      /* read uncommitted */
        put_int(&w, 1, 4);
        put_string(&w, option.topic);
        put_int(&w, 1, 4);
        put_int(&w, partition, 4);
        c->offset_at = w.length;
        put_int(&w, 0, 8);
        put_int(&w, option.bytes, 4);
        break;
    case METADATA:
        put_int(&w, 1, 4);
        put_string(&w, option.topic);
        break;
    case VERSIONS:
        break;
    }
    store(w.data, w.length - 4, 4);
    c->frame = w.data;
    c->frame_length = w.length;
}

/* Answers. */

struct reader { const uint8_t *data; size_t length, position; };

static int64_t get_int(struct reader *r, int width) {
    if (r->position + (size_t)width > r->length) fail("the answer is too short");
    uint64_t value = r->data[r->position] & 128 ? ~(uint64_t)0 : 0;
    for (int i = 0; i < width; i++) value = value << 8 | r->data[r->position++];
    return (int64_t)value;
}

static void skip_string(struct reader *r) {
    int64_t length = get_int(r, 2);
    if (length > 0) r->position += (size_t)length;
}

/* The error code of an answer; adds the record bytes of a fetch to *records. */
static int check_answer(struct connection *c, uint64_t *records) {
    struct reader r = { c->head, c->size < HEAD ? c->size : HEAD, 0 };
    uint32_t id = (uint32_t)get_int(&r, 4);
    if (id != c->awaited_id) fail("answer %" PRIu32 " where %" PRIu32 " was due", id, c->awaited_id);
    if (option.api == VERSIONS) return (int)get_int(&r, 2);
    if (option.api == METADATA) {
        for (int64_t left = get_int(&r, 4); left > 0; left--) {
            get_int(&r, 4);
            skip_string(&r);
            get_int(&r, 4);
            skip_string(&r);
        }
        get_int(&r, 4);
        if (get_int(&r, 4) != 1) fail("metadata of more or less than one topic");
        return (int)get_int(&r, 2);
    }
    if (option.api == FETCH) get_int(&r, 4); /* throttle time */
    if (get_int(&r, 4) != 1) fail("an answer about more or less than one topic");
    skip_string(&r);
    if (get_int(&r, 4) != 1) fail("an answer about more or less than one partition");
    get_int(&r, 4);
    int error = (int)get_int(&r, 2);
    if (option.api == FETCH && error == 0) {
        get_int(&r, 8);
        get_int(&r, 8);
        for (int64_t left = get_int(&r, 4); left > 0; left--) {
            get_int(&r, 8);
            get_int(&r, 8);
        }
        int64_t length = get_int(&r, 4);
        if (length <= 0) fail("an empty fetch at offset %" PRId64, c->offset);
        *records += (uint64_t)length;
    }
    return error;
}

static void answered(struct connection *c) {
    int64_t now = now_ns();
    uint64_t payload = option.api == PRODUCE ? (uint64_t)option.bytes : 0;
    int error = check_answer(c, &payload);
    int64_t took = now - c->started[c->awaited_id % (uint32_t)option.depth];
    c->awaited_id++;
    run.answered++;
    run.last_answer = now;
    if (error != 0) {
        run.errors++;
        if (run.first_error == 0) run.first_error = error;
    }
    if (!run.open) {
        if (now >= run.warm_until && run.answered >= (uint64_t)option.warm_requests) {
            run.open = 1;
            run.opened = now;
            run.end = now + option.seconds * SECOND;
        }
    } else if (!run.stopping || now < run.end) {
        if (error == 0) {
            run.counted++;
            run.payload += payload;
            histogram[bucket_of((uint64_t)took)]++;
            if (took > run.slowest) run.slowest = took;
        }
    }
    if (run.open && now >= run.end) run.stopping = 1;
}

/* Sockets. */

static void watch(struct connection *c, int operation) {
    struct epoll_event event = { .events = EPOLLIN | (c->waits_to_write ? EPOLLOUT : 0) };
    event.data.ptr = c;
    if (epoll_ctl(poller, operation, c->fd, &event) != 0) fail("epoll_ctl: %s", strerror(errno));
}

static void pump(struct connection *c) {
    int blocked = 0;
    for (;;) {
        if (!c->sending) {
            if (run.stopping || c->next_id - c->awaited_id >= (uint32_t)option.depth) break;
            if (option.requests > 0 && run.started >= (uint64_t)option.requests) break;
            store(c->frame + 8, c->next_id, 4);
            if (option.api == FETCH) {
                store(c->frame + c->offset_at, (uint64_t)c->offset, 8);
                c->offset += option.step;
                if (c->offset >= option.span) c->offset = 0;
            }
            c->started[c->next_id++ % (uint32_t)option.depth] = now_ns();
            run.started++;
            c->sending = 1;
            c->sent = 0;
        }
        ssize_t done = send(c->fd, c->frame + c->sent, c->frame_length - c->sent, MSG_NOSIGNAL);
        if (done < 0) {
            if (errno == EINTR) continue;
            if (errno != EAGAIN) fail("send: %s", strerror(errno));
            blocked = 1;
            break;
        }
        c->sent += (size_t)done;
        if (c->sent == c->frame_length) c->sending = 0;
    }
    if (blocked != c->waits_to_write) {
        c->waits_to_write = blocked;
        watch(c, EPOLL_CTL_MOD);
    }
}

static void receive(struct connection *c) {
    ssize_t length = recv(c->fd, scratch, SCRATCH, 0);
    if (length == 0) fail("a broker hung up");
    if (length < 0) {
        if (errno == EAGAIN || errno == EINTR) return;
        fail("recv: %s", strerror(errno));
    }
    for (size_t at = 0; at < (size_t)length;) {
        if (c->prefix_got < 4) {
            c->prefix[c->prefix_got++] = scratch[at++];
            if (c->prefix_got < 4) continue;
            struct reader r = { c->prefix, 4, 0 };
            int64_t size = get_int(&r, 4);
            if (size < 4 || size > MAX_FRAME) fail("an answer of %" PRId64 " bytes", size);
            c->size = (uint32_t)size;
            c->got = 0;
            continue;
        }
        size_t part = (size_t)length - at;
        if (part > c->size - c->got) part = c->size - c->got;
        if (c->got < HEAD) {
            size_t kept = part < HEAD - c->got ? part : HEAD - c->got;
            memcpy(c->head + c->got, scratch + at, kept);
        }
        c->got += (uint32_t)part;
        at += part;
        if (c->got == c->size) {
            c->prefix_got = 0;
            if (c->next_id == c->awaited_id) fail("an answer that nobody asked for");
            answered(c);
        }
    }
}

static void open_connection(struct connection *c, const struct target *target) {
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd < 0 || connect(c->fd, (const void *)&target->address, sizeof target->address) != 0)
        fail("connect: %s", strerror(errno));
    int one = 1;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    c->started = calloc((size_t)option.depth, sizeof *c->started);
    if (c->started == NULL) fail("no memory");
    watch(c, EPOLL_CTL_ADD);
}

/* Command line. */

static void add_target(const char *text) {
    char host[64];
    int port = 0, partition = 0;
    if (sscanf(text, "%63[^:]:%d/%d", host, &port, &partition) < 2 || port < 1 || port > 65535)
        fail("target: expected HOST:PORT/PARTITION, found %s", text);
    if (option.target_count == MAX_TARGETS) fail("target: more than %d", MAX_TARGETS);
    struct target *target = &option.targets[option.target_count++];
    target->address.sin_family = AF_INET;
    target->address.sin_port = htons((uint16_t)port);
    target->partition = partition;
    if (inet_pton(AF_INET, host, &target->address.sin_addr) != 1)
        fail("target: expected an IPv4 address, found %s", host);
}

static void parse(int count, char **arguments) {
    static const struct { const char *name; long long *value, lowest, highest; } numbers[] = {
        {"connections", &option.connections, 1, 4096}, {"depth", &option.depth, 1, 4096},
        {"seconds", &option.seconds, 1, 86400},        {"warmup_ms", &option.warmup_ms, 0, 3600000},
        {"requests", &option.requests, 0, INT64_MAX},  {"warm_requests", &option.warm_requests, 0, INT64_MAX},
        {"bytes", &option.bytes, 0, MAX_FRAME / 2},    {"acks", &option.acks, -1, 1},
        {"span", &option.span, 0, INT64_MAX},          {"step", &option.step, 0, INT64_MAX},
    };
    static const struct { const char *name; enum api api; } apis[] = {
        {"produce", PRODUCE}, {"fetch", FETCH}, {"metadata", METADATA}, {"versions", VERSIONS},
    };
    for (int i = 1; i < count; i++) {
        char *value = strchr(arguments[i], '=');
        if (value == NULL) fail("expected NAME=VALUE, found %s", arguments[i]);
        *value++ = 0;
        const char *name = arguments[i];
        int known = 1;
        if (strcmp(name, "target") == 0) add_target(value);
        else if (strcmp(name, "topic") == 0) option.topic = value;
        else known = 0;
        for (size_t k = 0; strcmp(name, "api") == 0 && k < sizeof apis / sizeof *apis; k++)
            if (strcmp(value, apis[k].name) == 0) { option.api = apis[k].api; known = 1; }
        for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++)
            if (strcmp(name, numbers[k].name) == 0) {
                char *end;
                *numbers[k].value = strtoll(value, &end, 10);
                if (*value == 0 || *end != 0 || *numbers[k].value < numbers[k].lowest ||
                    *numbers[k].value > numbers[k].highest)
                    fail("%s: expected a number from %lld to %lld, found %s", name,
                         numbers[k].lowest, numbers[k].highest, value);
                known = 1;
            }
        if (!known) fail("unknown: %s=%s", name, value);
    }
    if (option.target_count == 0) fail("target: expected at least one");
    if (option.api == PRODUCE && option.acks == 0) fail("acks=0 is not answered");
    if (strlen(option.topic) > 249) fail("topic: expected at most 249 bytes");
}

int main(int count, char **arguments) {
    parse(count, arguments);
    poller = epoll_create1(0);
    if (poller < 0) fail("epoll_create1: %s", strerror(errno));
    struct writer batch = {0};
    if (option.api == PRODUCE) batch = record_batch();
    struct connection *all = calloc((size_t)option.connections, sizeof *all);
    if (all == NULL) fail("no memory");
    for (long long i = 0; i < option.connections; i++) {
        const struct target *target = &option.targets[i % option.target_count];
        build_frame(&all[i], target->partition, &batch);
        open_connection(&all[i], target);
    }
    run.begin = now_ns();
    run.warm_until = run.begin + option.warmup_ms * 1000000;
    int64_t limit = run.warm_until + (option.seconds + DRAIN_LIMIT_S) * SECOND;
    for (long long i = 0; i < option.connections; i++) pump(&all[i]);
    for (;;) {
        struct epoll_event events[256];
        int ready = epoll_wait(poller, events, 256, 1000);
        if (ready < 0 && errno != EINTR) fail("epoll_wait: %s", strerror(errno));
        for (int i = 0; i < ready; i++) {
            struct connection *c = events[i].data.ptr;
            if (events[i].events & ~(uint32_t)EPOLLOUT) receive(c);
            pump(c);
        }
        int all_sent = run.stopping ||
                       (option.requests > 0 && run.started >= (uint64_t)option.requests);
        if (all_sent && run.answered == run.started) break;
        if (now_ns() > limit)
            fail("%" PRIu64 " requests were not answered in time", run.started - run.answered);
    }
    /* Stopped by time the window is as long as was asked for, else it ends with the last answer. */
    int64_t closed = run.last_answer < run.end ? run.last_answer : run.end;
    double seconds = run.open ? (double)(closed - run.opened) / 1e9 : 0;
    printf("{\"requests\": %" PRIu64 ", \"seconds\": %.6f, \"errors\": %" PRIu64
           ", \"first_error\": %d, \"payload_bytes\": %" PRIu64 ", \"p50_us\": %.1f,"
           " \"p99_us\": %.1f, \"p99_9_us\": %.1f, \"max_us\": %.1f, \"all_requests\": %" PRIu64 "}\n",
           run.counted, seconds, run.errors, run.first_error, run.payload, percentile_us(50),
           percentile_us(99), percentile_us(99.9), (double)run.slowest / 1000.0, run.answered);
    return 0;
}
