"""A Django site answers a health check by a query in a thread pool of its own, made
per request and never shut down. Django keeps one connection per thread and closes it
at the end of a request only in the thread that served it, so each idle pool thread
holds a connection to the database."""
import http.client
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import django
from django.conf import settings
from django.core.servers.basehttp import ThreadedWSGIServer, WSGIRequestHandler

SECONDS = float(os.environ.get("LB_SECONDS", "20"))
RATE = float(os.environ.get("LB_RATE", "4"))
WORK = os.environ["LB_WORK"]

settings.configure(
    SECRET_KEY="leakbench", ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, INSTALLED_APPS=[], MIDDLEWARE=[],
    LOGGING_CONFIG=None, USE_TZ=True, DEFAULT_AUTO_FIELD="django.db.models.AutoField",
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.path.join(WORK, "shop.db")}})
django.setup()

from django.core.wsgi import get_wsgi_application  # noqa: E402
from django.db import connection, models  # noqa: E402
from django.http import HttpResponse  # noqa: E402
from django.urls import path  # noqa: E402

pools = []


class Order(models.Model):
    class Meta:
        app_label = "shop"


def count_orders():
    return Order.objects.count()


def orders(request):
    return HttpResponse(str(count_orders()))


def health(request):
    pool = ThreadPoolExecutor(max_workers=1)
    pools.append(pool)
    return HttpResponse(str(pool.submit(count_orders).result()))


urlpatterns = [path("orders", orders), path("health", health)]


class QuietHandler(WSGIRequestHandler):
    def log_message(self, *args):
        pass


def get(port, url):
    c = http.client.HTTPConnection("127.0.0.1", port)
    c.request("GET", url, headers={"Connection": "close"})
    body = c.getresponse().read()
    c.close()
    return body


def customers(port):
    while True:
        get(port, "/orders")
        time.sleep(0.05)


def main():
    print("READY", os.getpid(), flush=True)
    with connection.schema_editor() as editor:
        editor.create_model(Order)
    connection.close()
    server = ThreadedWSGIServer(("127.0.0.1", 0), QuietHandler)
    server.daemon_threads = True
    server.set_app(get_wsgi_application())
    port = server.server_address[1]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    threading.Thread(target=customers, args=(port,), daemon=True).start()
    time.sleep(1.0)
    print("PHASE run", flush=True)
    begin, n = time.monotonic(), 0
    while n < RATE * SECONDS:
        get(port, "/health")
        n += 1
        time.sleep(max(0, begin + n / RATE - time.monotonic()))
    print(f"DONE leaked={len(pools)}", flush=True)
    time.sleep(1.5)
    sys.stdout.flush()
    os._exit(0)


main()
