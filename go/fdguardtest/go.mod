module github.com/fdguard/fdguard/go/fdguardtest

go 1.19
