// Opens and closes in the ways of C++ at each line of its input, and says when it is done. Every
// round leaves one file open, by the line marked KEEPS.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

static std::vector<std::unique_ptr<std::ifstream>> kept;

static void keep()
{
    kept.push_back(std::make_unique<std::ifstream>("/etc/passwd")); // KEEPS
}

int main()
{
    std::cout << "READY" << std::endl;
    for (std::string line; std::getline(std::cin, line);) {
        for (int i = 0; i < 50; i++) {
            std::ifstream file("/etc/passwd");
            for (auto &entry : std::filesystem::directory_iterator("/etc/alternatives")) {
                (void)entry;
                break;
            }
            if (FILE *stream = std::fopen("/dev/null", "r"))
                std::fclose(stream);
        }
        keep();
        std::cout << "DONE" << std::endl;
    }
}
