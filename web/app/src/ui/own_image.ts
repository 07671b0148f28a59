/**
 * Which images are fetched unasked: those that lie with a chat on this server, and those that are their own address. Pure.
 *
 * Any other address is all it takes to carry words out of a chat; and any other path of this server is no image, some of
 * them streams that never end.
 */

export const OWN_IMAGE = /^(?:data:image\/(?:png|jpe?g|webp|gif);base64,|\/v1\/chats\/[\w-]{1,128}\/blobs\/[0-9a-f]{1,64}$)/i;
