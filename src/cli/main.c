#include <stdio.h>

int main(void)
{
    fputs("usage: shoal COMMAND\n", stdout);
    return 2;
}
