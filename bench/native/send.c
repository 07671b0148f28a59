/* The least cost of a fan-out: a server of event streams that only calls send(2) with the same bytes for each connection.
 *
 *   send PAYLOAD_FILE
 *
 * It prints the port that it listens on (127.0.0.1). It answers every request with the head of an event stream and keeps
 * the connection open. A line "go COUNT INTERVAL_US" on stdin sends the file's bytes to all connections COUNT times, with
 * that pause in microseconds; a burst would fill buffers and measure something else. Then it prints
 * {"connections":N, "sent":N}. Its CPU time is read from outside, from the clock of its process. If a connection does not
 * take the bytes at once, the process ends, because the readers are too slow for a measurement.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 100000, PAYLOAD_MOST = 1 << 20 };

static const char head[] = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n";
static int connections[MOST], count;
static char payload[PAYLOAD_MOST];
static size_t payload_length;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void go(long times, long interval_us) {
    struct timespec at;
    long sent = 0;
    clock_gettime(CLOCK_MONOTONIC, &at);
    for (long i = 0; i < times; i++) {
        at.tv_nsec += interval_us * 1000;
        at.tv_sec += at.tv_nsec / 1000000000;
        at.tv_nsec %= 1000000000;
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
        for (int each = 0; each < count; each++, sent++)
            if (send(connections[each], payload, payload_length, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)payload_length) die("send");
    }
    printf("{\"connections\":%d,\"sent\":%ld}\n", count, sent);
    fflush(stdout);
}

int main(int argc, char **argv) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    struct rlimit files;
    static char text[65536];
    FILE *file;
    if (argc != 2 || !(file = fopen(argv[1], "rb"))) die("send PAYLOAD_FILE");
    payload_length = fread(payload, 1, sizeof payload, file);
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), epoll = epoll_create1(0);
    if (bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 2048)) die("listen");
    getsockname(listener, (struct sockaddr *)&at, &length);
    printf("%d\n", ntohs(at.sin_port));
    fflush(stdout);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener};
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
    event.data.fd = STDIN_FILENO;
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, STDIN_FILENO, &event)) die("stdin must be a pipe");
    for (;;) {
        if (epoll_wait(epoll, &event, 1, -1) != 1) continue;
        if (event.data.fd == STDIN_FILENO) {
            long times, interval_us;
            ssize_t got = read(STDIN_FILENO, text, sizeof text - 1);
            if (got <= 0) return 0;
            text[got] = 0;
            if (sscanf(text, "go %ld %ld", &times, &interval_us) == 2) go(times, interval_us);
        } else if (event.data.fd == listener) {
            int one = 1, each = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
            if (each < 0 || count == MOST) continue;
            setsockopt(each, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
            event.events = EPOLLIN;
            event.data.fd = each;
            epoll_ctl(epoll, EPOLL_CTL_ADD, each, &event);
        } else { /* a request, whatever it says; later only its end */
            epoll_ctl(epoll, EPOLL_CTL_DEL, event.data.fd, NULL);
            if (recv(event.data.fd, text, sizeof text, 0) <= 0 || send(event.data.fd, head, sizeof head - 1, MSG_NOSIGNAL) < 0) close(event.data.fd);
            else connections[count++] = event.data.fd;
        }
    }
}
