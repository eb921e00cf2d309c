#include "wire/tls.h"

#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdlib.h>

#include "base/file.h"

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
