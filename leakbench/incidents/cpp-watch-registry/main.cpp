// A registry of data sets opens each file and watches it for changes with an inotify
// instance of its own. A reload adds a new entry under a new version and forgets to
// drop the old one, so both descriptors of every old version stay open.
#include <sys/inotify.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <thread>

using namespace std::chrono;

static double env(const char *name, double def)
{
    const char *v = std::getenv(name);
    return v ? std::atof(v) : def;
}

static void nap(double s)
{
    std::this_thread::sleep_for(duration<double>(s));
}

class Watch {
public:
    explicit Watch(const std::string &path)
    {
        fd_ = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
        inotify_add_watch(fd_, path.c_str(), IN_MODIFY);
    }
    ~Watch() { close(fd_); }
    Watch(const Watch &) = delete;

private:
    int fd_;
};

struct DataSet {
    std::ifstream rows;
    std::unique_ptr<Watch> watch;
};

static std::unique_ptr<DataSet> load(const std::string &path)
{
    auto set = std::make_unique<DataSet>();
    set->rows.open(path);
    set->watch = std::make_unique<Watch>(path);
    return set;
}

class Registry {
public:
    void reload(const std::string &path) { sets_[path + "#" + std::to_string(++version_)] = load(path); }

private:
    std::map<std::string, std::unique_ptr<DataSet>> sets_;
    int version_ = 0;
};

static void preview(const std::string &path)
{
    for (;;) {
        auto set = load(path);
        std::string row;
        std::getline(set->rows, row);
        nap(0.03);
    }
}

static void spool(const std::string &dir)
{
    for (int i = 0;; i++) {
        std::ofstream out(dir + "/spool-" + std::to_string(i % 4));
        out << "row\n";
        out.flush();
        nap(0.015);
    }
}

int main()
{
    std::cout << "READY " << getpid() << std::endl;
    std::string dir = std::getenv("LB_WORK"), path = dir + "/rows.csv";
    std::ofstream(path) << "id,name\n1,first\n";
    std::thread(preview, path).detach();
    std::thread(spool, dir).detach();
    nap(1);
    std::cout << "PHASE run" << std::endl;
    Registry registry;
    double seconds = env("LB_SECONDS", 20), rate = env("LB_RATE", 2);
    auto begin = steady_clock::now();
    int n = 0;
    while (n < rate * seconds) {
        registry.reload(path);
        n++;
        std::this_thread::sleep_until(begin + duration<double>(n / rate));
    }
    std::cout << "DONE leaked=" << 2 * n << std::endl;
    nap(1.5);
    _exit(0);
}
