/* Many readers of event streams in one small process, so that the readers do not disturb the measured server. Lines on
 * stdin control it.
 *
 *   readers HOST PORT PATH [-m CHATS] [-H 'Name: value']... [-t KEY] [-r BYTES] [-w AT_ONCE]
 *
 * HOST is an IPv4 address. In PATH, "%d" is replaced by the connection's number modulo CHATS (-m, by default 1). An
 * event is a line that begins with "data:". Each command on stdin is answered by one line of JSON on stdout:
 *
 *   open N       opens N more connections, AT_ONCE (200) at the same time; answered when each has the head of a 200
 *   wait K       answered when each connection that is not stalled has had K events since it was opened or reset
 *   gather T     answered when all connections together have had T events
 *   count        answered at once
 *   reset        sets all counters and latencies to zero; answered at once
 *   stall N      stops reading the first N connections;  go: reads them again
 *   reopen       closes all and opens all again, each with its last Last-Event-ID; answered like open
 *   close        closes all
 *
 * The answer: {"readers":N, "open":N, "events":T, "least":K, "bytes":B, "cpu_s":S, "first_s":S, "last_s":S,
 * "p50_us":..., "p99_us":..., "max_us":..., "stamps":N, "lost":N, "writes":N}. `open` counts connections with a head, `least` is the
 * least number of events of a reader, and `bytes` counts bodies with their chunk marks. first_s and last_s are the times
 * (CLOCK_MONOTONIC, in Python time.monotonic) when the first and the last bytes of an event arrived since the reset:
 * after a reset and one event, when the first and the last reader had the event. With -t KEY, the number after each KEY
 * in an event is the time when the event was made, in nanoseconds of the same clock, and the latencies are computed from
 * it. `lost` counts connections that the server closed or answered with another status than 200. -r sets SO_RCVBUF.
 * `writes` counts the TCP segments with data since the reset (TCP_INFO): over loopback, where a segment holds 64 kB, the
 * server's writes, as its sockets have TCP_NODELAY. The process ends at the end of stdin, or after a wait of 120 s.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { READ_BYTES = 262144, TAIL_BYTES = 512, MOST = 100000, STAMPS_MOST = 4000000, WAIT_SECONDS = 120, HEADERS_MOST = 8 };

typedef struct {
    int fd, number;
    unsigned char matched, has_status, has_head, head_matched, is_stalled, is_lost;
    unsigned tail_length;
    unsigned long events;
    char tail[TAIL_BYTES]; /* the last bytes, where the last id stands */
} Reader;

static Reader *readers[MOST];
static int readers_count, opened_count, started_count, chats = 1, at_once = 200, receive_bytes, epoll, lost_count;
static unsigned long total_events, total_bytes, segments_before;
static double first_at, last_at;
static const char *host, *path, *key, *headers[HEADERS_MOST];
static int port, headers_count, is_resuming;
static float *stamps;
static unsigned long stamps_count;
static char buffer[READ_BYTES + 1];

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + at.tv_nsec / 1e9;
}

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void watch(Reader *reader, int how, unsigned events) {
    struct epoll_event event = {.events = events, .data.ptr = reader};
    if (epoll_ctl(epoll, how, reader->fd, &event)) die("epoll_ctl");
}

static void begin(int number) {
    Reader *reader = readers[number];
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    int one = 1;
    inet_pton(AF_INET, host, &to.sin_addr);
    reader->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (reader->fd < 0) die("socket (ulimit -n?)");
    setsockopt(reader->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (receive_bytes) setsockopt(reader->fd, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    if (connect(reader->fd, (struct sockaddr *)&to, sizeof to) && errno != EINPROGRESS) die("connect");
    watch(reader, EPOLL_CTL_ADD, EPOLLIN | EPOLLOUT);
}

static void last_id(const Reader *reader, char *id) { /* of the last block that is complete */
    char text[TAIL_BYTES + 1], *found, *next;
    memcpy(text, reader->tail, reader->tail_length);
    text[reader->tail_length] = 0;
    id[0] = 0;
    for (found = text; (next = strstr(found, "\nid: ")); found = next + 1)
        if (strchr(next + 1, '\n')) sscanf(next + 5, "%250[^\r\n]", id);
}

static void ask(Reader *reader) {
    char request[4096], target[1024], id[256] = "";
    int length;
    snprintf(target, sizeof target, path, reader->number % chats);
    length = snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: %s:%d\r\nAccept: text/event-stream\r\n", target, host, port);
    for (int i = 0; i < headers_count; i++) length += snprintf(request + length, sizeof request - length, "%s\r\n", headers[i]);
    if (is_resuming) last_id(reader, id);
    if (id[0]) length += snprintf(request + length, sizeof request - length, "Last-Event-ID: %s\r\n", id);
    length += snprintf(request + length, sizeof request - length, "\r\n");
    if (send(reader->fd, request, length, MSG_NOSIGNAL) != length) die("send");
    reader->tail_length = 0;
    watch(reader, EPOLL_CTL_MOD, EPOLLIN);
}

static void lose(Reader *reader) {
    close(reader->fd);
    reader->fd = -1;
    reader->is_lost = 1;
    opened_count -= reader->has_head;
    lost_count++;
}

static void count_stamps(const char *data, size_t length, double at) {
    size_t key_length = strlen(key);
    const char *end = data + length;
    while ((data = memmem(data, end - data, key, key_length))) {
        data += key_length;
        if (stamps_count < STAMPS_MOST) stamps[stamps_count++] = at * 1e6 - strtoull(data, NULL, 10) / 1e3;
    }
}

static void count_events(Reader *reader, const char *data, size_t length) {
    static const char line[] = "\ndata:";
    const char *end = data + length;
    unsigned matched = reader->matched;
    while (data < end) {
        if (!matched) {
            data = memchr(data, '\n', end - data);
            if (!data) break;
        }
        if (*data == line[matched]) {
            data++;
            if (++matched == 6) {
                reader->events++;
                total_events++;
                matched = 0;
            }
        } else {
            matched = 0; /* this byte is looked at again: it may be the line end that begins another try */
        }
    }
    reader->matched = matched;
}

static void take(Reader *reader, char *data, size_t length, double at) {
    size_t kept = length < TAIL_BYTES ? length : TAIL_BYTES;
    unsigned long before = total_events;
    if (!reader->has_head) {
        static const char end_of_head[] = "\r\n\r\n";
        if (!reader->has_status && (length < 12 || memcmp(data + 9, "200", 3))) {
            fprintf(stderr, "%.*s\n", (int)length, data);
            lose(reader);
            return;
        }
        reader->has_status = 1;
        for (; length && reader->head_matched < 4; data++, length--)
            reader->head_matched = *data == end_of_head[reader->head_matched] ? reader->head_matched + 1 : *data == '\r';
        if (reader->head_matched < 4) return;
        reader->has_head = 1;
        reader->matched = 1; /* a body begins a line */
        opened_count++;
        kept = length < TAIL_BYTES ? length : TAIL_BYTES;
    }
    total_bytes += length;
    count_events(reader, data, length);
    if (total_events != before) {
        if (!first_at) first_at = at;
        last_at = at;
    }
    if (key) count_stamps(data, length, at);
    if (reader->tail_length + kept > TAIL_BYTES) {
        unsigned keep = TAIL_BYTES - kept;
        memmove(reader->tail, reader->tail + reader->tail_length - keep, keep);
        reader->tail_length = keep;
    }
    memcpy(reader->tail + reader->tail_length, data + length - kept, kept);
    reader->tail_length += kept;
}

static void turn(int milliseconds) {
    struct epoll_event events[256];
    while (started_count < readers_count && started_count - opened_count - lost_count < at_once) begin(started_count++);
    int count = epoll_wait(epoll, events, 256, milliseconds);
    for (int i = 0; i < count; i++) {
        Reader *reader = events[i].data.ptr;
        if (events[i].events & EPOLLOUT) {
            ask(reader);
            continue;
        }
        if (reader->is_stalled) { /* only EPOLLHUP and EPOLLERR come unasked */
            lose(reader);
            continue;
        }
        ssize_t length = recv(reader->fd, buffer, READ_BYTES, 0);
        if (length > 0) {
            buffer[length] = 0;
            take(reader, buffer, length, now());
        } else if (length == 0 || (errno != EAGAIN && errno != EINTR)) {
            lose(reader);
        }
    }
}

static unsigned long least(void) {
    unsigned long fewest = -1UL;
    for (int i = 0; i < readers_count; i++)
        if (!readers[i]->is_stalled && !readers[i]->is_lost && readers[i]->events < fewest) fewest = readers[i]->events;
    return readers_count ? fewest : 0;
}

static int by_size(const void *a, const void *b) {
    float left = *(const float *)a, right = *(const float *)b;
    return (left > right) - (left < right);
}

static unsigned long segments(void) {
    unsigned long sum = 0;
    for (int each = 0; each < readers_count; each++) {
        struct tcp_info info;
        socklen_t length = sizeof info;
        if (!getsockopt(readers[each]->fd, IPPROTO_TCP, TCP_INFO, &info, &length)) sum += info.tcpi_data_segs_in;
    }
    return sum;
}

static void answer(void) {
    struct timespec cpu;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    printf("{\"readers\":%d,\"open\":%d,\"events\":%lu,\"least\":%lu,\"bytes\":%lu,\"cpu_s\":%.6f,\"first_s\":%.6f,\"last_s\":%.6f",
           readers_count, opened_count, total_events, least(), total_bytes, cpu.tv_sec + cpu.tv_nsec / 1e9, first_at, last_at);
    if (stamps_count) {
        qsort(stamps, stamps_count, sizeof *stamps, by_size);
        printf(",\"p50_us\":%.1f,\"p99_us\":%.1f,\"max_us\":%.1f", stamps[stamps_count / 2],
               stamps[(unsigned long)(stamps_count * 0.99)], stamps[stamps_count - 1]);
    }
    printf(",\"stamps\":%lu,\"lost\":%d,\"writes\":%lu}\n", stamps_count, lost_count, segments() - segments_before);
    fflush(stdout);
}

static void reset(void) {
    segments_before = segments();
    for (int i = 0; i < readers_count; i++) readers[i]->events = 0;
    total_events = total_bytes = stamps_count = 0;
    first_at = last_at = 0;
}

static void close_all(void) {
    for (int i = 0; i < readers_count; i++)
        if (readers[i]->fd >= 0) close(readers[i]->fd);
}

static void reopen(void) {
    close_all();
    for (int i = 0; i < readers_count; i++) {
        Reader *reader = readers[i];
        reader->matched = reader->has_status = reader->has_head = reader->head_matched = 0;
        reader->is_stalled = reader->is_lost = 0;
    }
    started_count = opened_count = lost_count = 0;
    is_resuming = 1;
}

static void obey(const char *line) {
    char verb[16] = "";
    unsigned long number = 0;
    double until = now() + WAIT_SECONDS;
    sscanf(line, "%15s %lu", verb, &number);
    if (!strcmp(verb, "open")) {
        for (; number && readers_count < MOST; number--) {
            readers[readers_count] = calloc(1, sizeof(Reader));
            readers[readers_count]->fd = -1;
            readers[readers_count]->number = readers_count;
            readers_count++;
        }
        while (opened_count + lost_count < readers_count && now() < until) turn(100);
    } else if (!strcmp(verb, "wait")) {
        while (least() < number && now() < until) turn(100);
    } else if (!strcmp(verb, "gather")) {
        while (total_events < number && now() < until) turn(100);
    } else if (!strcmp(verb, "reset")) {
        reset();
    } else if (!strcmp(verb, "stall") || !strcmp(verb, "go")) {
        int stalls = verb[0] == 's';
        for (int i = 0; i < readers_count && (!stalls || i < (int)number); i++) {
            if (readers[i]->fd >= 0 && readers[i]->is_stalled != stalls) watch(readers[i], EPOLL_CTL_MOD, stalls ? 0 : EPOLLIN);
            readers[i]->is_stalled = stalls;
        }
    } else if (!strcmp(verb, "reopen")) {
        reopen();
        while (opened_count + lost_count < readers_count && now() < until) turn(100);
    } else if (!strcmp(verb, "close")) {
        close_all();
        for (int i = 0; i < readers_count; i++) free(readers[i]);
        readers_count = started_count = opened_count = lost_count = is_resuming = 0;
    } else if (strcmp(verb, "count")) {
        fprintf(stderr, "unknown command: %s\n", line);
        exit(2);
    }
    answer();
}

int main(int argc, char **argv) {
    static char lines[4096];
    size_t held = 0;
    int option;
    struct rlimit files;
    while ((option = getopt(argc, argv, "m:H:t:r:w:")) != -1) {
        if (option == 'm') chats = atoi(optarg);
        else if (option == 'H' && headers_count < HEADERS_MOST) headers[headers_count++] = optarg;
        else if (option == 't') key = optarg;
        else if (option == 'r') receive_bytes = atoi(optarg);
        else if (option == 'w') at_once = atoi(optarg);
        else exit(2);
    }
    if (argc - optind != 3) {
        fprintf(stderr, "readers HOST PORT PATH: see the head of readers.c\n");
        return 2;
    }
    host = argv[optind], port = atoi(argv[optind + 1]), path = argv[optind + 2];
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    if (key && !(stamps = malloc(STAMPS_MOST * sizeof *stamps))) die("malloc");
    epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    int commands = epoll_create1(EPOLL_CLOEXEC); /* of stdin and of the sockets' epoll, so that waiting costs nothing */
    if (epoll_ctl(commands, EPOLL_CTL_ADD, STDIN_FILENO, &event)) die("stdin must be a pipe");
    event.data.ptr = &epoll;
    epoll_ctl(commands, EPOLL_CTL_ADD, epoll, &event);
    for (;;) {
        struct epoll_event ready[2];
        int count = epoll_wait(commands, ready, 2, -1);
        for (int i = 0; i < count; i++) {
            if (ready[i].data.ptr) {
                turn(0);
                continue;
            }
            ssize_t length = read(STDIN_FILENO, lines + held, sizeof lines - held - 1);
            if (length <= 0) return 0;
            held += length;
            lines[held] = 0;
            for (char *end; (end = strchr(lines, '\n'));) {
                *end = 0;
                obey(lines);
                held -= end + 1 - lines;
                memmove(lines, end + 1, held + 1);
            }
        }
    }
}
