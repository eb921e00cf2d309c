#include "wire/tls.h"

#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/chrono.h"
#include "base/file.h"
#include "base/thread.h"

struct tls {
    SSL_CTX *context;
};

/* The library's queue of errors, oldest first: the first says most. */
static bool tls_refuse(struct err *e, const char *setting, const char *path)
{
    unsigned long code = ERR_get_error();
    const char *reason = code ? ERR_reason_error_string(code) : NULL;
    ERR_clear_error();
    return err_set(e, ERR_CONFIG, "%s %s: %s", setting, path, reason ? reason : "cannot be used");
}

static bool tls_check_files(const char *cert, const char *key, struct err *e)
{
    struct file_info info;
    if (!file_stat(&info, cert, e))
        return err_wrap(e, "tls.cert");
    if (!file_stat(&info, key, e))
        return err_wrap(e, "tls.key");
    return !(info.mode & 077) ||
           err_set(e, ERR_CONFIG, "tls.key %s: mode %03o lets others read it; 600 expected", key,
                   info.mode & 0777);
}

static bool tls_load(const struct tls *t, const char *cert, const char *key, struct err *e)
{
    SSL_CTX_set_min_proto_version(t->context, TLS1_2_VERSION);
    SSL_CTX_set_options(t->context, SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_mode(t->context, SSL_MODE_RELEASE_BUFFERS); /* idle connections: 34 KB less each */
    if (SSL_CTX_use_certificate_chain_file(t->context, cert) != 1)
        return tls_refuse(e, "tls.cert", cert);
    if (SSL_CTX_use_PrivateKey_file(t->context, key, SSL_FILETYPE_PEM) != 1)
        return tls_refuse(e, "tls.key", key);
    return SSL_CTX_check_private_key(t->context) == 1 || tls_refuse(e, "tls.key", key);
}

bool tls_open(struct tls **out, const char *cert, const char *key, struct err *e)
{
    if (!tls_check_files(cert, key, e))
        return false;
    struct tls *t = calloc(1, sizeof *t);
    if (!t)
        return err_set(e, ERR_MEMORY, "tls: no memory");
    ERR_clear_error();
    t->context = SSL_CTX_new(TLS_server_method());
    if (t->context ? !tls_load(t, cert, key, e) : !err_set(e, ERR_MEMORY, "tls: no memory")) {
        tls_close(t);
        return false;
    }
    *out = t;
    return true;
}

void tls_close(struct tls *t)
{
    if (!t)
        return;
    SSL_CTX_free(t->context);
    free(t);
}

struct bufferevent *tls_accept(const struct tls *t, struct event_base *base, int fd)
{
    SSL *ssl = SSL_new(t->context);
    if (!ssl)
        return NULL;
    struct bufferevent *bev = bufferevent_openssl_socket_new(
        base, fd, ssl, BUFFEREVENT_SSL_ACCEPTING, BEV_OPT_CLOSE_ON_FREE);
    if (bev)
        bufferevent_openssl_set_allow_dirty_shutdown(bev, 1); /* as an end of file without TLS */
    else
        SSL_free(ssl);
    return bev;
}

void tls_finish(struct bufferevent *bev)
{
    SSL *ssl = bufferevent_openssl_get_ssl(bev);
    if (ssl && SSL_is_init_finished(ssl))
        SSL_shutdown(ssl);
    ERR_clear_error();
}

/* --- the client's side --------------------------------------------------------------------- */

static bool tls_trust(SSL_CTX *context, const struct tls_peer *p, struct err *e)
{
    SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_default_verify_paths(context);
    /* Our own server's certificate is trusted as it is, whoever signed it. */
    X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(context), X509_V_FLAG_PARTIAL_CHAIN);
    return !p->trusted || SSL_CTX_load_verify_locations(context, p->trusted, NULL) == 1 ||
           tls_refuse(e, "tls.cert", p->trusted);
}

static SSL *tls_new_client(int fd, const struct tls_peer *p, struct err *e)
{
    unsigned char address[sizeof(struct in6_addr)];
    bool is_address = inet_pton(AF_INET, p->host, address) == 1 ||
                      inet_pton(AF_INET6, p->host, address) == 1;
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL *ssl = NULL;
    if (!context || tls_trust(context, p, e)) {
        ssl = context ? SSL_new(context) : NULL;
        bool ok = ssl && SSL_set_fd(ssl, fd) == 1;
        if (ok && is_address)
            ok = X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), p->host) == 1;
        else if (ok)
            ok = SSL_set1_host(ssl, p->host) == 1 && SSL_set_tlsext_host_name(ssl, p->host) == 1;
        if (!ok) {
            SSL_free(ssl);
            ssl = NULL;
            err_set(e, ERR_MEMORY, "tls: no memory");
        }
    }
    SSL_CTX_free(context); /* the connection has a reference */
    return ssl;
}

/* What SSL waits for on its socket, as poll says it; 0: it has failed or ended. */
static short tls_wants(const SSL *ssl, int result)
{
    int error = SSL_get_error(ssl, result);
    return error == SSL_ERROR_WANT_READ ? POLLIN : error == SSL_ERROR_WANT_WRITE ? POLLOUT : 0;
}

static bool tls_handshake(SSL *ssl, int fd, const struct tls_peer *p, struct err *e)
{
    int64_t until_ms = chrono_ms(&chrono_real) + p->timeout_ms;
    for (;;) {
        ERR_clear_error();
        int result = SSL_connect(ssl);
        int64_t left = until_ms - chrono_ms(&chrono_real);
        struct pollfd wait = {.fd = fd, .events = result == 1 ? 0 : tls_wants(ssl, result)};
        if (result == 1)
            return true;
        if (!wait.events) {
            long bad = SSL_get_verify_result(ssl);
            unsigned long code = ERR_get_error();
            const char *reason = bad != X509_V_OK ? X509_verify_cert_error_string(bad)
                                 : code           ? ERR_reason_error_string(code)
                                                  : NULL;
            return err_set(e, ERR_UPSTREAM, "TLS: %s", reason ? reason : "it hung up");
        }
        if (left <= 0 || (poll(&wait, 1, (int)left) < 0 && errno != EINTR))
            return err_set(e, ERR_DEADLINE, "the server does not answer in time");
    }
}

struct tls_relay {
    SSL *ssl;
    int fd, plain; /* the server's socket; our end of the caller's pair */
};

/* One direction's bytes on their way. */
struct tls_bytes {
    char bytes[TLS_RELAY];
    size_t at, count;
    bool has_ended;
};

/* False: the caller is gone. */
static bool tls_to_caller(const struct tls_relay *r, struct tls_bytes *b)
{
    ssize_t n = send(r->plain, b->bytes + b->at, b->count - b->at, MSG_NOSIGNAL);
    b->at += n > 0 ? (size_t)n : 0;
    return n > 0 || errno == EAGAIN || errno == EINTR;
}

static void tls_from_caller(const struct tls_relay *r, struct tls_bytes *b)
{
    ssize_t n = recv(r->plain, b->bytes, sizeof b->bytes, 0);
    b->at = 0;
    b->count = n > 0 ? (size_t)n : 0;
    b->has_ended = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

/* Moves what can be moved of both directions; *wants: what the server's socket is waited for.
 * False: nothing more will come. */
static bool tls_move(const struct tls_relay *r, struct tls_bytes *in, struct tls_bytes *out,
                     short *wants)
{
    size_t n = 0;
    *wants = 0;
    if (out->at < out->count) {
        ERR_clear_error();
        int result = SSL_write_ex(r->ssl, out->bytes + out->at, out->count - out->at, &n);
        out->at += result == 1 ? n : 0;
        *wants |= result == 1 ? 0 : tls_wants(r->ssl, result);
        if (result != 1 && !*wants)
            return false;
    }
    if (in->at == in->count && !in->has_ended) {
        ERR_clear_error();
        int result = SSL_read_ex(r->ssl, in->bytes, sizeof in->bytes, &n);
        short more = result == 1 ? 0 : tls_wants(r->ssl, result);
        in->at = 0;
        in->count = result == 1 ? n : 0;
        in->has_ended = result != 1 && !more;
        *wants |= more;
    }
    return in->at < in->count ? tls_to_caller(r, in) : !in->has_ended;
}

static void *tls_work(void *ctx)
{
    struct tls_relay *r = ctx;
    struct tls_bytes *both = calloc(2, sizeof *both), *in = both, *out = both + 1;
    short wants;
    while (both && tls_move(r, in, out, &wants)) {
        bool has_room = out->at == out->count && !out->has_ended;
        struct pollfd fds[2] = {{.fd = wants ? r->fd : -1, .events = wants},
                                {.fd = r->plain, .events = has_room ? POLLIN : 0}};
        if (in->at < in->count)
            fds[1].events |= POLLOUT;
        /* Nothing to wait for: SSL may hold more than its socket shows. */
        if (poll(fds, 2, wants || fds[1].events & POLLOUT ? -1 : 0) < 0 && errno != EINTR)
            break;
        if (fds[1].revents && has_room)
            tls_from_caller(r, out);
        else if (fds[1].revents & (POLLHUP | POLLERR))
            break;
        if (out->has_ended) /* the caller closed: it wants no answer any more */
            break;
    }
    SSL_shutdown(r->ssl);
    ERR_clear_error();
    SSL_free(r->ssl);
    close(r->fd);
    close(r->plain);
    free(both);
    free(r);
    return NULL;
}

bool tls_connect(int fd, const struct tls_peer *p, int *plain, struct err *e)
{
    int pair[2] = {-1, -1};
    pthread_t id;
    struct tls_relay *r = calloc(1, sizeof *r);
    SSL *ssl = r ? tls_new_client(fd, p, e) : NULL;
    bool ok = (r || err_set(e, ERR_MEMORY, "tls: no memory")) && ssl &&
              tls_handshake(ssl, fd, p, e) &&
              (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0 ||
               err_set_errno(e, errno, "tls: a pair of sockets"));
    if (ok) {
        *r = (struct tls_relay){ssl, fd, pair[1]};
        ok = thread_start(&id, "tls", tls_work, r, e);
    }
    if (ok) {
        pthread_detach(id);
        *plain = pair[0];
        return true;
    }
    for (int i = 0; i < 2; i++)
        if (pair[i] >= 0)
            close(pair[i]);
    SSL_free(ssl);
    ERR_clear_error();
    close(fd);
    free(r);
    return false;
}
