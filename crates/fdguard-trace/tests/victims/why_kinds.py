import atexit, collections, concurrent.futures, contextlib, dataclasses, functools, gc, itertools, logging, logging.handlers, multiprocessing, os, queue, select, selectors, shelve, socket, socketserver, sqlite3, subprocess, sys, tempfile, threading, time, types, weakref, zipfile, tarfile, gzip, bz2, lzma, dbm, http.client, urllib.request, signal, asyncio, contextvars, shutil, glob, mmap, csv, codecs, io, ssl, ctypes, enum, heapq, array
work = tempfile.mkdtemp()
def new(): return open("/etc/hosts")
GROUPS = {}
def openfds(): return {int(f) for f in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/'+f)}
class G:
    def __init__(s, name): s.name=name
    def __enter__(s): s.b=openfds()
    def __exit__(s,*a): print(s.name.replace(" ","-"),*sorted(openfds()-s.b),flush=True)
class Slotted:
    __slots__=("handle","name")
    def __init__(s): s.handle=new(); s.name="x"
with G("dict of slots"):
    BYNAME = {f"k{i}": Slotted() for i in range(4)}
@dataclasses.dataclass
class Job:
    name: str
    log: object = dataclasses.field(default_factory=new)
with G("dataclass"):
    JOBS = [Job(f"j{i}") for i in range(4)]
@dataclasses.dataclass(frozen=True)
class FJob:
    log: object
with G("frozen dataclass in frozenset"):
    FJOBS = frozenset(FJob(new()) for i in range(4))
@functools.lru_cache(maxsize=None)
def opened(n): return new()
with G("lru_cache"):
    for i in range(4): opened(i)
@functools.lru_cache(maxsize=None)
def opened2(*a): return new()
with G("lru_cache args"):
    opened2(new())
class CP:
    @functools.cached_property
    def f(s): return new()
with G("cached_property"):
    CPS=[CP() for _ in range(4)]
    for c in CPS: c.f
with G("exitstack"):
    STACK = contextlib.ExitStack()
    for i in range(4): STACK.enter_context(new())
with G("exitstack callback"):
    STACK2 = contextlib.ExitStack()
    for i in range(4):
        f=new(); STACK2.callback(f.close)
    del f
with G("thread args"):
    ev=threading.Event()
    def tgt(f, e): e.wait()
    TH=[threading.Thread(target=tgt,args=(new(),ev),daemon=True,name=f"w{i}") for i in range(3)]
    for t in TH: t.start()
with G("thread not kept"):
    def tgt2(e, conn): e.wait()
    for i in range(3): threading.Thread(target=tgt2,args=(ev,),kwargs={'conn':new()},daemon=True).start()
with G("timer"):
    TM=threading.Timer(1000, print, args=(new(),)); TM.daemon=True; TM.start(); del TM
with G("queue"):
    Q=queue.Queue()
    for i in range(4): Q.put(new())
with G("queue tuples"):
    PQ=queue.PriorityQueue()
    for i in range(4): PQ.put((i,new()))
with G("simplequeue"):
    SQ=queue.SimpleQueue()
    for i in range(4): SQ.put(new())
with G("deque"):
    DQ=collections.deque(new() for i in range(4))
with G("defaultdict"):
    DD=collections.defaultdict(list)
    for i in range(4): DD[i%2].append(new())
with G("ordereddict"):
    OD=collections.OrderedDict((i,new()) for i in range(4))
with G("namedtuple"):
    NT=collections.namedtuple("NT","a f")
    NTS=[NT(1,new()) for _ in range(4)]
with G("futures"):
    EX=concurrent.futures.ThreadPoolExecutor(2)
    FUT=[EX.submit(new) for i in range(4)]
    for f in FUT: f.result()
    del f
with G("executor pending"):
    EX2=concurrent.futures.ThreadPoolExecutor(1)
    EX2.submit(ev.wait)
    for i in range(4): EX2.submit(print, new())
with G("exception list"):
    ERR=[]
    def fail():
        f=new()
        raise ValueError("x")
    for i in range(4):
        try: fail()
        except ValueError as e: ERR.append(e)
with G("exc_info tuple"):
    EI=[]
    def fail2():
        conn=new()
        helper(conn)
    def helper(c): raise KeyError
    for i in range(3):
        try: fail2()
        except KeyError: EI.append(sys.exc_info())
with G("sqlite class attr"):
    class DB: conn=sqlite3.connect(os.path.join(work,"x.db"))
    DB.conn.execute("create table t(a)")
with G("nested closures"):
    def outer():
        f=new()
        def mid():
            def inner(): return f
            return inner
        return mid()
    CBS=[outer() for i in range(4)]
with G("partial"):
    PART=[functools.partial(print,new()) for i in range(4)]
with G("lambda default"):
    LD=[lambda f=new(): f for i in range(4)]
with G("popen list"):
    PROCS=[subprocess.Popen(["cat"],stdin=subprocess.PIPE,stdout=subprocess.PIPE) for i in range(3)]
with G("socketserver"):
    SRV=socketserver.ThreadingTCPServer(("127.0.0.1",0),socketserver.BaseRequestHandler)
    threading.Thread(target=SRV.serve_forever,daemon=True).start()
    time.sleep(.1)
with G("selectors"):
    SEL=selectors.DefaultSelector()
    for i in range(2):
        a,b=socket.socketpair(); SEL.register(a,selectors.EVENT_READ,data=("peer",b))
    del a,b
with G("epoll"):
    EP=select.epoll()
with G("mp pipe"):
    MP=[multiprocessing.Pipe() for _ in range(2)]
with G("mp queue"):
    MQ=multiprocessing.Queue()
with G("tempfile"):
    TF=[tempfile.TemporaryFile() for _ in range(2)]+[tempfile.NamedTemporaryFile() for _ in range(2)]
with G("spooled"):
    SP=tempfile.SpooledTemporaryFile(max_size=1); SP.write(b"xxx")
z=os.path.join(work,"a.zip")
with zipfile.ZipFile(z,"w") as zz: zz.writestr("m","data"*100); zz.writestr("n","x")
with G("zip members"):
    ZS=[zipfile.ZipFile(z).open("m") for _ in range(3)]
t=os.path.join(work,"a.tar")
with tarfile.open(t,"w") as tt: tt.add(z)
with G("tar members"):
    TS=[tarfile.open(t) for _ in range(2)]
with gzip.open(os.path.join(work,"g.gz"),"w") as g: g.write(b"x")
with G("gzip"):
    GZ=[gzip.open(os.path.join(work,"g.gz")) for _ in range(2)]
with G("bz2lzma"):
    BZ=[bz2.open(os.path.join(work,"b.bz2"),"w"), lzma.open(os.path.join(work,"l.xz"),"w")]
with G("logging handlers"):
    for i in range(3):
        logging.getLogger("app.job").addHandler(logging.FileHandler(os.path.join(work,"l.log")))
with G("logging rotating named loggers"):
    for i in range(3):
        logging.getLogger(f"job-{i}").addHandler(logging.handlers.RotatingFileHandler(os.path.join(work,f"r{i}.log")))
with G("csv reader"):
    CR=[csv.reader(new()) for _ in range(2)]
with G("codecs"):
    CO=[codecs.open("/etc/hosts","r","utf-8") for _ in range(2)]
with G("generator"):
    def lines():
        with open("/etc/hosts") as fh:
            for l in fh: yield l
    GEN=[lines() for _ in range(3)]
    for g in GEN: next(g)
    del g
with G("generator chain"):
    ITER=[itertools.chain(map(str.strip, new()), []) for _ in range(2)]
with G("enumerate zip"):
    EZ=[enumerate(new()), zip(new(),new()), filter(None,new())]
with G("weakvalue"):
    class W: pass
    WV=weakref.WeakValueDictionary()
    w=W(); w.f=new(); WV["a"]=w; KEEPW=[w]; del w
with G("weakkey"):
    WK=weakref.WeakKeyDictionary(); KEY=W(); WK[KEY]=new()
with G("finalize"):
    OBJ=W(); weakref.finalize(OBJ, print, new())
with G("contextvar"):
    CV=contextvars.ContextVar("cv"); CV.set(new())
with G("ctx copy"):
    CV2=contextvars.ContextVar("cv2"); ctx=contextvars.copy_context(); ctx.run(CV2.set,new())
with G("function attr"):
    def fn(): pass
    fn.cache={"f":new()}
with G("class registry"):
    class Meta(type):
        registry={}
        def __call__(cls,*a):
            o=super().__call__(*a); Meta.registry[id(o)]=o; return o
    class Res(metaclass=Meta):
        def __init__(s): s.fd=new()
    for i in range(3): Res()
with G("singleton"):
    class Single:
        _inst=None
        def __new__(c):
            if c._inst is None: c._inst=super().__new__(c); c._inst.f=new()
            return c._inst
    Single()
with G("property private"):
    class P:
        def __init__(s): s.__f=new()
    PS={"a":{"b":[P()]}}
with G("inherit list"):
    class Pool(list): pass
    POOL=Pool(new() for _ in range(3))
with G("inherit dict"):
    class Reg(dict): pass
    REG=Reg((i,new()) for i in range(3))
with G("userdict"):
    UD=collections.UserDict(); UD["x"]=new()
with G("chainmap"):
    CM=collections.ChainMap({"a":new()},{})
with G("mappingproxy"):
    MPX=types.MappingProxyType({"a":new()})
with G("simplenamespace"):
    NS=types.SimpleNamespace(f=new(),g=types.SimpleNamespace(h=new()))
with G("enum"):
    class E(enum.Enum):
        A=new()
with G("module attr"):
    m=types.ModuleType("plugin"); m.conn=new(); sys.modules["plugin"]=m; del m
with G("signal handler"):
    h=new(); signal.signal(signal.SIGUSR1, functools.partial(print,h)); del h
with G("atexit args"):
    atexit.register(print,new())
with G("heap"):
    HP=[]; 
    for i in range(3): heapq.heappush(HP,(i,new()))
with G("http client"):
    HC=[]; handled=threading.Semaphore(0)
    class H(socketserver.StreamRequestHandler):
        def handle(s): 
            handled.release()
            s.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"); time.sleep(1000)
    S2=socketserver.ThreadingTCPServer(("127.0.0.1",0),H); S2.daemon_threads=True
    threading.Thread(target=S2.serve_forever,daemon=True).start()
with G("http responses"):
    for i in range(3): HC.append(urllib.request.urlopen(f"http://127.0.0.1:{S2.server_address[1]}/")); handled.acquire()
with G("http conns"):
    HCC={}
    for i in range(3):
        c=http.client.HTTPConnection("127.0.0.1",S2.server_address[1]); c.connect(); HCC[f"h{i}"]=c; handled.acquire()
    del c
async def reader(sock, ev2):
    r,w=await asyncio.open_connection(sock=sock)
    ev2.set()
    await r.read()
def runloop():
    async def main():
        for i in range(3):
            a,b=socket.socketpair(); PEERS.append(b); e=asyncio.Event()
            TASKS.add(asyncio.create_task(reader(a,e))); await e.wait()
        done.set(); await asyncio.sleep(1000)
    asyncio.run(main())
PEERS=[]; TASKS=set(); done=threading.Event()
with G("asyncio streams"):
    threading.Thread(target=runloop,daemon=True).start(); done.wait()
async def aq():
    q=asyncio.Queue(); AQ.append(q)
    for i in range(3): q.put_nowait(new())
AQ=[]
with G("asyncio queue"):
    asyncio.run(aq())
with G("mmap"):
    ff=open(os.path.join(work,"mm"),"w+b"); ff.write(b"x"*4096); ff.flush()
    MM={"m":mmap.mmap(ff.fileno(),4096)}; ff.close(); del ff
with G("cycle in container"):
    class Node: pass
    n=Node(); n.me=n; n.f=new(); del n
with G("unreachable no cycle? list self"):
    l=[new()]; l.append(l); del l
with G("memoryview/BytesIO none"):
    TW=io.TextIOWrapper(io.BufferedReader(io.FileIO("/etc/hosts")))
with G("dirfd"):
    class D:
        def __init__(s): s.fd=os.open("/tmp",os.O_RDONLY)
    DS=[D() for _ in range(4)]
print("READY",flush=True)
sys.stdin.read()
