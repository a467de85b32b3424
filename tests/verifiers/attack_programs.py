"""The attacking programs by name.  `HOST`, `PORT`, `NAME` and `MARKER` tell them what there is to attack."""

PRELUDE = '''
import ctypes, gc, os, re, signal, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
PATTERN = re.compile(b"rlvr-" + b"secret-[0-9a-f]{16}")
def breach(*what):
    print("BREACH", *what, flush=True)
def attempt(action, *arguments):
    """BREACH if it works, otherwise the exception."""
    value = action(*arguments)
    breach(action, value)
    return value
def native(name, *arguments):
    if getattr(libc, name)(*arguments) >= 0:
        breach(name)
    number = ctypes.get_errno()
    raise OSError(number, name + ": " + os.strerror(number))
'''

_NETWORK = {
    "tcp to the host": "import socket\nattempt(socket.create_connection, ('127.0.0.1', PORT), 1)",
    "udp": "import socket\nattempt(socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto, b'x', ('127.0.0.1', PORT))",
    "abstract unix socket": "import socket\ns = socket.socket(socket.AF_UNIX)\nattempt(s.connect, NAME)",
    "raw socket": "import socket\nattempt(socket.socket, socket.AF_INET, socket.SOCK_RAW, 1)",
    "netlink": "import socket\nattempt(socket.socket, socket.AF_NETLINK, socket.SOCK_RAW)",
    "web request": "import urllib.request\nattempt(urllib.request.urlopen, f'http://127.0.0.1:{PORT}/', None, 1)",
    "server": "import socket\ns = socket.socket()\nattempt(s.bind, ('0.0.0.0', 0))",
    "name look-up": "import socket\nattempt(socket.gethostbyname, 'example.com')",
    "io_uring": "native('syscall', 425, 8, ctypes.create_string_buffer(256))",
}

_FILES = {
    "read /etc/passwd": "attempt(open, '/etc/passwd')",
    "read a file of the host": "attempt(open, MARKER)",
    "overwrite a file of the host": "attempt(open, MARKER, 'w').write('pwned')",
    "truncate by a read-only open": "attempt(os.open, MARKER, os.O_RDONLY | os.O_TRUNC)",
    "truncate by name": "attempt(os.truncate, MARKER, 0)",
    "chmod of a host file": "attempt(os.chmod, MARKER, 0o777)",
    "new file beside it": "attempt(open, os.path.dirname(MARKER) + '/new', 'w')",
    "rename of a host file": "attempt(os.rename, MARKER, MARKER + '2')",
    "delete a host file": "attempt(os.unlink, MARKER)",
    "climb with ..": "os.chdir('/tmp')\nattempt(open, '../../../../etc/shadow')",
    "write to the library": "import json\nattempt(open, json.__file__, 'a')",
    "replace a library module": "import json\nattempt(os.rename, json.__file__, '/tmp/json.py')",
    "symbolic link to the host": "os.symlink(MARKER, 'link')\nattempt(open, 'link', 'w')",
    "hard link to the library": "attempt(os.link, os.__file__, '/tmp/rlvr-attack')\n",
    "leave a file in /tmp": "open('/tmp/rlvr-attack', 'w').write('x')\nraise SystemExit(1)",
    "leave a file in /dev/shm": "attempt(open, '/dev/shm/rlvr-attack', 'w')",
    "device node": "import stat\nattempt(os.mknod, 'disk', 0o600 | stat.S_IFBLK, os.makedev(254, 0))",
    "raw memory": "attempt(open, '/dev/mem', 'rb')",
    "fill the disk": "for i in range(10**6):\n    open(f'f{i}', 'wb').write(b'x' * 2**20)\nbreach()",
    "one large file": "f = open('f', 'wb')\nfor i in range(10**4): f.write(b'x' * 2**20)\nbreach()",
    "sparse file": "f = open('f', 'wb')\nattempt(f.truncate, 2**40)",
    "a million small files": "for i in range(10**6): open(f'f{i}', 'w').close()\nbreach()",
    "deep directories": "while True:\n    os.mkdir('d')\n    os.chdir('d')",
    "memory as a file": "attempt(os.memfd_create, 'x')",
    "open every file": "held = []\nwhile True: held.append(open('/dev/null'))",
}

_PROCESSES = {
    "fork": "attempt(os.fork)",
    "fork bomb": "while True: os.fork()",
    "fork bomb that does not give up": "while True:\n    try: os.fork()\n    except OSError: pass",
    "survivor in its own session": (
        "if attempt(os.fork) == 0:\n    os.setsid()\n    os.execv('/bin/sleep', ['sleep', '600'])"
    ),
    "daemon by two forks": (
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(600)\n    os._exit(0)"
    ),
    "subprocess": "import subprocess\nattempt(subprocess.run, ['/bin/sleep', '600'])",
    "shell": "print(os.system('sleep 600 &') and 'held' or breach())\nraise SystemExit(3)",
    "posix_spawn": "attempt(os.posix_spawn, '/bin/sleep', ['sleep', '600'], {})",
    "multiprocessing": (
        "import multiprocessing as m\nm.get_context('fork').Process(target=time.sleep, args=(600,)).start()"
    ),
    "another program in its place": "os.execv('/bin/sleep', ['sleep', '600'])",
    "vfork": "native('vfork')",
    "clone3": "native('syscall', 435, ctypes.create_string_buffer(88), 88)",
    "a session of its own": "attempt(os.setsid)",
    "ten thousand threads": (
        "threading.stack_size(32768)\n"
        "for i in range(10**4): threading.Thread(target=time.sleep, args=(600,)).start()\nbreach()"
    ),
    "threads that never end": "threading.Thread(target=time.sleep, args=(600,)).start()",
}

_SIGNALS = {
    "kill the parent": "attempt(os.kill, os.getppid(), signal.SIGKILL)",
    "kill the first process": "attempt(os.kill, 1, signal.SIGKILL)",
    "kill the host's process": "attempt(os.kill, HOST, signal.SIGTERM)",
    "kill everything": "attempt(os.kill, -1, signal.SIGKILL)",
    "kill its group": "attempt(os.killpg, os.getpgrp(), signal.SIGKILL)",
    "kill its group by 0": "attempt(os.kill, 0, signal.SIGKILL)",
    "signal by a descriptor": "attempt(signal.pidfd_send_signal, attempt(os.pidfd_open, os.getppid()), signal.SIGKILL)",
    "signal by a pipe's owner": (
        "import fcntl\nr, w = os.pipe()\nfcntl.fcntl(r, fcntl.F_SETOWN, os.getppid())\nbreach()\n"
        "fcntl.fcntl(r, 10, signal.SIGKILL)\nfcntl.fcntl(r, fcntl.F_SETFL, os.O_ASYNC)\nos.write(w, b'x')"
    ),
    "queue a signal": "native('sigqueue', os.getppid(), 9, 0)",
    "limits of the parent": "import resource\nattempt(resource.prlimit, os.getppid(), resource.RLIMIT_CPU, (1, 1))",
    "priority of the parent": "attempt(os.setpriority, os.PRIO_PROCESS, os.getppid(), 19)",
    "processors of the parent": "attempt(os.sched_setaffinity, os.getppid(), {0})",
    "stop itself": "os.kill(os.getpid(), signal.SIGSTOP)",
    "kill itself": "os.kill(os.getpid(), signal.SIGKILL)",
}

_RESOURCES = {
    "large list": "x = [0] * 10**10\nbreach()",
    "memory bit by bit": "x = []\nwhile True: x.append(bytearray(2**20))",
    "memory that catches its errors": (
        "x = []\nwhile True:\n    try: x.append(bytearray(2**20))\n    except MemoryError: pass"
    ),
    "shared memory": "import mmap\nattempt(mmap.mmap, -1, 2**33)",
    "system v shared memory": "native('shmget', 0, 2**24, 0o1666)",
    "more memory by a limit": "import resource\nattempt(resource.setrlimit, resource.RLIMIT_AS, (2**40, 2**40))",
    "huge integer": "print(len(str(10 ** 10 ** 9)))",
    "huge shift": "1 << 10**12\nbreach()",
    "deep recursion": "sys.setrecursionlimit(10**9)\ndef f(n): return f(n + 1) + 1\nf(0)",
    "recursion in C": "sys.setrecursionlimit(10**9)\nx = []\nfor i in range(10**6): x = [x]\nrepr(x)",
    "program too deep to compile": "eval('(' * 10**6 + ')' * 10**6)",
    "regular expression without end": "re.match('(a+)+$', 'a' * 60 + 'b')",
    "endless loop": "while True: pass",
    "endless loop of threads": (
        "import hashlib\n"
        "for i in range(8): threading.Thread(target=hashlib.pbkdf2_hmac, args=('sha1', b'x', b'y', 10**9)).start()"
    ),
    "loop that catches everything": "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    "loop that ignores signals": (
        "for n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\nwhile True: pass"
    ),
    "sleep": "time.sleep(600)",
    "wait for input": "import select\nwhile True: select.select([], [], [])",
    "deadlock": "lock = threading.Lock()\nlock.acquire()\nlock.acquire()",
    "output flood": "while True: print('x' * 10000)",
    "error flood": "while True: print('x' * 10000, file=sys.stderr)",
    "output without a line end": "while True: sys.stdout.write('7')",
}

_KERNEL = {
    "ptrace the parent": "native('ptrace', 16, os.getppid(), 0, 0)",
    "read the parent's memory": (
        "b = ctypes.create_string_buffer(64)\nv = (ctypes.c_size_t * 2)(ctypes.addressof(b), 64)\n"
        "native('process_vm_readv', os.getppid(), v, 1, v, 1, 0)"
    ),
    "mount": "native('mount', b'none', b'/tmp', b'tmpfs', 0, None)",
    "unmount": "native('umount2', b'/tmp', 2)",
    "new user namespace": "native('unshare', 0x10000000)",
    "join the first namespace": "native('setns', os.open('/proc/1/ns/mnt', os.O_RDONLY), 0)",
    "chroot": "attempt(os.chroot, '/tmp')",
    "become root": "attempt(os.setuid, 0)",
    "change the filter": "native('prctl', 22, 1, 0, 0, 0)",
    "outlive the parent": "native('prctl', 1, 0, 0, 0, 0)",
    "execution domain": "native('personality', 0x0040000)",
    "host name": "attempt(__import__('socket').sethostname, 'pwned')",
    "clock": "attempt(time.clock_settime, time.CLOCK_REALTIME, 0)",
    "reboot": "native('reboot', 0x4321FEDC)",
    "null pointer": "ctypes.string_at(0)",
    "abort": "os.abort()",
}

_SCAN = """
for line in open("/proc/self/maps"):
    low, high = (int(x, 16) for x in line.split()[0].split("-"))
    if "rw" in line:
        for at in range(low, high, 4096):
            try: page = os.pread(memory, 4096, at)
            except OSError: break
            found |= set(PATTERN.findall(page))
"""
_SPY = {
    "environment and arguments": (
        "print(PATTERN.findall(repr((os.environ, sys.argv, sys.orig_argv)).encode())[0].decode())"
    ),
    "files of the parent in /proc": "attempt(open, f'/proc/{os.getppid()}/environ')",
    "environment of the host's process": "attempt(open, f'/proc/{HOST}/environ')",
    "memory of the parent in /proc": "attempt(open, f'/proc/{os.getppid()}/mem', 'rb')",
    "descriptors of the parent": "attempt(os.listdir, f'/proc/{os.getppid()}/fd')",
    "list of processes": "print(*[p for p in os.listdir('/proc') if p.isdigit() and int(p) > 2 and breach(p)])",
    "pipes of the zygote": "print(attempt(open, f'/proc/{os.getppid()}/fd/1', 'w'))",
    "its own memory": "found = set()\nmemory = os.open('/proc/self/mem', os.O_RDONLY)\n"
    + _SCAN
    + "print(found.pop().decode())",
    "its own memory, by address": (
        "pages = {id(r) & ~4095 for o in gc.get_objects() for r in gc.get_referents(o)}\n"
        "found = {f for page in pages for f in PATTERN.findall(ctypes.string_at(page, 4096))}\n"
        "print(found.pop().decode())"
    ),
    "all objects": (
        "for o in gc.get_objects():\n    for r in gc.get_referents(o):\n"
        "        if isinstance(r, (str, bytes)) and PATTERN.search(r.encode() if isinstance(r, str) else r):\n"
        "            print(r)"
    ),
    "frames of the harness": (
        "f = sys._getframe()\nwhile f:\n    m = PATTERN.search(repr((f.f_locals, f.f_globals)).encode())\n"
        "    if m: print(m[0].decode())\n    f = f.f_back"
    ),
    "rewind the input": "os.lseek(0, 0, 0)\nprint(PATTERN.search(os.read(0, 10**6))[0].decode())",
    "the harness as a module": "import jail.supervisor\nbreach()",
    "the trainer as a module": "sys.path.append('/usr/lib/python3/dist-packages')\nimport rlvr\nbreach()",
    "module of its own making": (
        "open('secrets.py', 'w').write('raise SystemExit(5)')\nsys.path.insert(0, '')\nimport secrets"
    ),
    "every descriptor": "for d in range(256):\n    try: os.write(d, b'\"rlvr\"\\n')\n    except OSError: pass",
}

_FORGED = {
    "exit at once": "os._exit(0)",
    "exit by exception": "sys.exit(0)",
    "crash, then exit 0": "import atexit\natexit.register(os._exit, 0)\nraise ValueError",
    "crash with a silent hook": "sys.excepthook = lambda *a: os._exit(0)\nraise ValueError",
    "catch its own exit": "try: sys.exit(0)\nexcept SystemExit: print('ok')",
    "no exit function": "os._exit = sys.exit = lambda *a: None\nraise ValueError",
    "other builtins": (
        "import builtins, json\nbuiltins.print = builtins.compile = builtins.exec = lambda *a, **k: None\n"
        "json.loads = json.dumps = lambda *a, **k: '[]'\nstr.__eq__ if True else None"
    ),
    "closed output": "os.close(1)\nos.close(2)",
    "message of the protocol": "os.write(1, (2).to_bytes(4, 'big') + b'{}')\nos.write(2, b'r')",
    "verdict in words": "print('{\"score\": 1.0}')\nprint('PASSED', 'OK', 'all tests passed')",
    "invisible output": "print('\\u200b\\x00\\x1b[2J')",
    "input as output": "print(sys.stdin.read())",
    "trace the harness": "sys.settrace(lambda f, e, a: print(e) or None)\nthreading.settrace(print)",
}
PROGRAMS = _NETWORK | _FILES | _PROCESSES | _SIGNALS | _RESOURCES | _KERNEL | _SPY | _FORGED

_EVERYWHERE = "for d in range(3, 64):\n    try: os.write(d, %s)\n    except OSError: pass\n"

FUNCTIONS = {
    "value that equals everything": (
        "class Any(str):\n    __eq__ = lambda s, o: True\n    __hash__ = str.__hash__\ndef solve(*a): return Any('x')"
    ),
    "object that equals everything": "class Any:\n    __eq__ = lambda s, o: True\ndef solve(*a): return Any()",
    "printed result": "def solve(*a): print('\"rlvr-secret\"')",
    "result on every descriptor": _EVERYWHERE % "b'\"x\"'" + "def solve(*a): pass",
    "result before the crash": _EVERYWHERE % "b'true'" + "os._exit(0)",
    "result too deep to read": _EVERYWHERE % "b'[' * 60000" + "os._exit(0)",
    "result flood": "def solve(*a): return 'x' * 10**8",
    "result in a circle": "x = []\nx.append(x)\ndef solve(*a): return x",
    "not a number": "def solve(*a): return float('nan')",
    "exit inside the function": "def solve(*a): sys.exit(0)",
    "json that lies": "import json\njson.dumps = lambda *a, **k: '\"x\"'\ndef solve(*a): return object()",
    "encoder that lies": (
        "import json.encoder as e\ne.encode_basestring_ascii = e.c_make_encoder = None\ndef solve(*a): return 'x'"
    ),
    "no function at all": "print('solve')",
    "function that is not one": "solve = 5",
    "function that exits later": "import atexit\natexit.register(print, 'x')\ndef solve(*a): return None",
    "harness through the stack": (
        "def solve(*a):\n    f = sys._getframe()\n    while f:\n"
        "        m = PATTERN.search(repr((f.f_locals, f.f_globals)).encode())\n"
        "        if m: return m[0].decode()\n        f = f.f_back"
    ),
}
