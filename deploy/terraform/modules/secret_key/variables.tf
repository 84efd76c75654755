variable "project" {
  description = "Id of the project."
  type        = string
}

variable "region" {
  description = "Region of the secret: that of the processes."
  type        = string
}

variable "name" {
  description = "Prefix of the secret's name."
  type        = string
  default     = "wakeq"
}

variable "readers" {
  description = "Addresses of the service accounts that register targets and sign deliveries, under keys of your choice."
  type        = map(string)
}
