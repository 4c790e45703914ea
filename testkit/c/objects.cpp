/* Opens by C++'s ways; each line with a mark leaves open as many as its mark says. None is a tail call, which would
 * leave no frame. */
#include <atomic>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#define NOINLINE __attribute__((noinline))

namespace shop {

template <typename T> struct Box {
    std::vector<T> kept;
    NOINLINE void put(const char *path)
    {
        kept.push_back(static_cast<T>(open(path, O_RDONLY))); // LEAK 2 template
    }
};

class Held {
public:
    explicit Held(const std::string &path) : stream(path) // LEAK 3 constructor
    {
        if (!stream)
            throw std::runtime_error("no " + path);
    }

private:
    std::ifstream stream;
};

NOINLINE int risky(int number)
{
    int fd = open("/dev/null", O_RDONLY); // LEAK 4 thrown
    if (number >= 0)
        throw std::runtime_error("left behind");
    return fd;
}

NOINLINE void careful()
{
    std::ifstream stream("/dev/null");
    throw std::logic_error("closed by the way out");
}

} // namespace shop

int main()
{
    shop::Box<int> ints;
    shop::Box<long> longs;
    ints.put("/dev/null");
    longs.put("/dev/null");

    std::vector<std::unique_ptr<shop::Held>> held;
    for (int i = 0; i < 3; i++)
        held.push_back(std::make_unique<shop::Held>("/dev/null"));

    int caught = 0;
    for (int i = 0; i < 4; i++) {
        try {
            shop::risky(i);
        } catch (const std::exception &) {
            caught++;
        }
        try {
            shop::careful();
        } catch (const std::logic_error &) {
            caught += open("/dev/null", O_RDONLY) > 0; // LEAK 4 handler
        }
    }

    auto lambda = [&](const char *path) {
        return open(path, O_RDONLY) + 1; // LEAK 1 lambda
    };
    std::function<int(const char *)> called = lambda;
    called("/dev/null");

    std::vector<std::filesystem::directory_iterator> folders;
    for (int i = 0; i < 2; i++)
        folders.emplace_back("/"); // LEAK 2 folder

    std::atomic<int> count = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 5; i++)
        threads.emplace_back([&] {
            count += open("/dev/null", O_RDONLY) > 0; // LEAK 5 thread
        });
    for (auto &thread : threads)
        thread.join();
    std::cout << "caught " << caught << " in threads " << count << std::endl;
    _exit(0);
}
