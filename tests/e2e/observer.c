/* An independent Modbus client: polls one block of holding registers and prints every change of its sequence number.
 *
 * usage: observer HOST PORT ADDRESS COUNT SEQUENCE_OFFSET
 * output: one line per change, the registers in hexadecimal. Ends when its standard input closes.
 */
#include <errno.h>
#include <modbus.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    if (argc != 6) {
        fprintf(stderr, "usage: observer HOST PORT ADDRESS COUNT SEQUENCE_OFFSET\n");
        return 2;
    }
    int address = atoi(argv[3]), count = atoi(argv[4]), offset = atoi(argv[5]);
    uint16_t block[125];
    unsigned long last = 0;
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN | POLLHUP};
    modbus_t *line = modbus_new_tcp(argv[1], atoi(argv[2]));
    if (line == NULL || modbus_set_slave(line, 1) == -1 || modbus_connect(line) == -1) {
        fprintf(stderr, "observer: %s\n", modbus_strerror(errno));
        return 1;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    /* A pause of 3 ms between polls leaves the server most of its time. */
    while (poll(&input, 1, 3) == 0) {
        if (modbus_read_registers(line, address, count, block) != count) {
            fprintf(stderr, "observer: %s\n", modbus_strerror(errno));
            return 1;
        }
        unsigned long sequence = ((unsigned long)block[offset] << 16) | block[offset + 1];
        if (sequence == last)
            continue;
        last = sequence;
        for (int i = 0; i < count; i++)
            printf("%04x", block[i]);
        printf("\n");
    }
    modbus_close(line);
    modbus_free(line);
    return 0;
}
