/* A Modbus TCP server of libmodbus.
 *
 * usage: libmodbus_server
 * output: its port, in one line. Serves several connections; ends when its standard input closes.
 *
 * Holding and input registers 0-7: 12.5 as float ABCD, CDAB, BADC, DCBA; 8-9: -2 as int32; 10: 0xFFFE; the rest is free. 1000 of each.
 * Coils and discrete inputs 0-99: every third is on. Other addresses: exception 2.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <modbus.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/select.h>
#include <unistd.h>

/* 12.5 is 0x41480000. libmodbus' own modbus_set_float_* swap the wrong bytes on little-endian hosts (its issues 611, 665, 807). */
static void fill(uint16_t *registers)
{
    const uint16_t floats[8] = {0x4148, 0x0000, 0x0000, 0x4148, 0x4841, 0x0000, 0x0000, 0x4841};
    for (int i = 0; i < 8; i++)
        registers[i] = floats[i];
    MODBUS_SET_INT32_TO_INT16(registers, 8, -2);
    registers[10] = 0xFFFE;
}

int main(void)
{
    modbus_t *server = modbus_new_tcp("127.0.0.1", 0);
    modbus_mapping_t *map = modbus_mapping_new(100, 100, 1000, 1000);
    int listener = server == NULL ? -1 : modbus_tcp_listen(server, 5);
    if (listener == -1 || map == NULL) {
        fprintf(stderr, "libmodbus_server: %s\n", modbus_strerror(errno));
        return 1;
    }
    fill(map->tab_registers);
    fill(map->tab_input_registers);
    for (int i = 0; i < 100; i += 3)
        map->tab_bits[i] = map->tab_input_bits[i] = 1;

    struct sockaddr_in address;
    socklen_t size = sizeof address;
    getsockname(listener, (struct sockaddr *)&address, &size);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);

    fd_set open;
    int highest = listener;
    FD_ZERO(&open);
    FD_SET(STDIN_FILENO, &open);
    FD_SET(listener, &open);
    for (;;) {
        fd_set ready = open;
        if (select(highest + 1, &ready, NULL, NULL, NULL) == -1 || FD_ISSET(STDIN_FILENO, &ready))
            return 0;
        for (int fd = listener; fd <= highest; fd++) {
            if (!FD_ISSET(fd, &ready))
                continue;
            if (fd == listener) {
                int client = accept(listener, NULL, NULL);
                if (client == -1)
                    continue;
                FD_SET(client, &open);
                highest = client > highest ? client : highest;
                continue;
            }
            uint8_t query[MODBUS_TCP_MAX_ADU_LENGTH];
            modbus_set_socket(server, fd);
            int length = modbus_receive(server, query);
            if (length > 0) {
                modbus_reply(server, query, length, map);
            } else if (length == -1) {
                close(fd);
                FD_CLR(fd, &open);
            }
        }
    }
}
